"""What ``bounds/__init__.pyi`` must hold, from the table of public names and from signatures.

``python tests/public_stub.py`` writes it.
"""

from __future__ import annotations

import builtins
import inspect
import re
import sys
from pathlib import Path

import bounds

STUB = Path(bounds.__file__).with_suffix(".pyi")
FIRST = '"""The public names, for type checkers and editors; written by ``python tests/public_stub.py``."""'


def text():
    """Return the stub: names as they are imported, functions whose ``**`` parameter is spelled out in full."""
    spelled = {name: found for name in bounds.__all__ if hasattr(found := getattr(bounds, name), "__signature__")}
    public = {
        f"from {home if name in bounds._PUBLIC[home] else 'bounds'} import {name} as {name}"
        for name, home in bounds._HOME.items()
        if name not in spelled
    }
    needed = {line for function in spelled.values() for line in _imports(function)}
    sections = [[], [], [*public]]  # of the standard library, of others, our own
    for line in needed:
        package = line.split()[1].split(".")[0]
        sections[0 if package in sys.stdlib_module_names else 2 if package == "bounds" else 1].append(line)
    imports = "\n\n".join("\n".join(sorted(lines, key=_order)) for lines in sections if lines)
    declared = [_declared(name, function) for name, function in spelled.items()]
    return "\n".join([FIRST, "", imports, "", "__version__: str", "", *declared, ""])


def _imports(function):
    """Yield the imports that the annotations of a function need."""
    signature = inspect.signature(function)
    annotations = [p.annotation for p in signature.parameters.values()] + [signature.return_annotation]
    for name in set(re.findall(r"(?<![\w.])[A-Za-z_]\w*", " ".join(annotations))):
        if not hasattr(builtins, name) and name not in bounds.__all__:
            modules = [m for n, m in sorted(sys.modules.items()) if n.startswith("bounds.") and hasattr(m, name)]
            found = getattr(modules[0], name)
            aliases = [m.__name__ for m in modules if f"\n{name} = " in inspect.getsource(m)]
            if inspect.ismodule(found):
                yield f"import {found.__name__} as {name}"
            else:
                yield f"from {aliases[0] if aliases else found.__module__} import {name}"


def _declared(name, function):
    """Return the declaration of a function; what it defaults to is left to the source."""
    signature, lines = inspect.signature(function), []
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "    *," not in lines:
            lines.append("    *,")
        optional = parameter.kind is inspect.Parameter.KEYWORD_ONLY or parameter.default is not parameter.empty
        lines.append(f"    {parameter.name}: {parameter.annotation}{' = ...' if optional else ''},")
    return "\n".join([f"def {name}(", *lines, f") -> {signature.return_annotation}: ..."])


def _order(line):
    """Return what sorts imports as ruff does."""
    kind, module, *_, name = line.split()
    return kind == "from", module, 0 if name.isupper() else 1 if name[0].isupper() else 2, name


if __name__ == "__main__":
    STUB.write_text(text(), encoding="utf-8")
