"""A checklist of parity: what makes two engines disagree that should agree, how each was looked for, what was found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bounds.certificate.findings import Finding, Kind
from bounds.certificate.summary import Summary
from bounds.logs.log import Log
from bounds.results import Record

#: How many times the divergence of the others that of the first token may be.
_FIRST = 10.0

#: What is checked, how, and the kinds of findings that say no.
_BY_FINDINGS = (
    ("shift", "no shift by a token and no exchange of rows fits better", (Kind.MISALIGNED, Kind.SWAPPED)),
    ("mask", "no fillers, forced tokens or padding count", (Kind.FORCED_TOKENS, Kind.PADDING, Kind.FILLERS)),
    ("temperature", "log-probs on a line of slope 1, mean ratio 1",
     (Kind.TEMPERATURE, Kind.OTHER_BASE, Kind.SUPPORT_GAP)),
    ("weights", "two scores, of one model", (Kind.WRONG_MODEL, Kind.COPIED, Kind.NOTHING_RECOMPUTED)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ParityCheck(Record):
    """One thing that may be wrong: ``how`` it was looked for, and whether it ``passed`` (None: it cannot be seen)."""

    what: str
    how: str
    passed: bool | None


def checklist(summary: Summary, found: Iterable[Finding]) -> tuple[ParityCheck, ...]:
    """Say of each thing that makes two engines disagree whether it was looked for, how, and whether it passed."""
    texts = {finding.kind: finding.text for finding in reversed(list(found))}
    checks = [_ids(summary)]
    for what, how, kinds in _BY_FINDINGS:
        against = next((texts[kind] for kind in kinds if kind in texts), None)
        checks.append(ParityCheck(what, how if against is None else against, against is None))
    return (*checks, _version(summary), _template(summary))


def _ids(summary: Summary) -> ParityCheck:
    if not (isinstance(summary.log, Log) and summary.log.scored):
        return ParityCheck("ids", "both policies stand in one row: no ids to compare", None)
    alone = next((note for note in summary.left_out.notes if "by their order alone" in note), None)
    return ParityCheck("ids", alone or "rows or token ids of both halves are equal", None if alone else True)


def _version(summary: Summary) -> ParityCheck:
    versions = summary.labels.get("weight_version", [])
    if not versions:
        return ParityCheck("version", "the log does not say which weights drew a token (weight_version)", None)
    said = f"{len(versions)} weight versions" if len(versions) > 1 else f"weight version {versions[0]} only"
    return ParityCheck("version", said, len(versions) == 1)


def _template(summary: Summary) -> ParityCheck:
    """Compare the first token with the others: after another prompt (template, BOS) it is the one that is off most."""
    k3, longer = summary.by_position()["k3"], float(summary["length"].mean()) - 1.0
    if longer <= 0.0 or not k3[1:].sum() > 0.0:
        return ParityCheck("template", "responses of one token: no others to compare the first with", None)
    ratio = float(k3[0] * longer / k3[1:].sum())
    how = f"a response's first token diverges {ratio:.3g} times as much as its others"
    return ParityCheck("template", how, ratio <= _FIRST)
