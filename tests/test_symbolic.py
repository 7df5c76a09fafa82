"""Each check passes, and each fails when its constant is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

import bounds
from bounds.cli import main as cli
from bounds.proof import CHECKS, registry
from bounds.proof.restated import BY_POSITION, RESTATED

every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.name)


@every_check
def test_passes(check):
    assert check.run() is True


@every_check
def test_fails_with_a_wrong_constant(check):
    assert check.wrong
    assert check.run(**check.wrong) is False


def test_every_rule_is_restated_enumerated_and_derived():
    assert set(RESTATED) | set(BY_POSITION) == {r.name for r in bounds.RULES}
    for rule in bounds.RULES:
        kinds = {c.how for c in CHECKS if rule.name in c.rules}
        assert kinds == {"symbolic", "exact", "interval"}, rule.name


def test_verify_reports_each(capsys, monkeypatch):
    """That each holds is said above; here it is what verify says of each."""
    monkeypatch.setattr(registry, "CHECKS", tuple(replace(check, run=lambda: True) for check in CHECKS))
    assert cli.main(["verify"]) == 0
    out = capsys.readouterr().out
    for check in CHECKS:
        assert check.name in out
    assert f"{len(CHECKS)} checks, 0 failed" in out
    assert "E_roll[g_t(c_t)]" in "".join(out.split())  # brackets are text, not markup


def test_verify_exits_1_if_one_fails(capsys, monkeypatch):
    broken = (replace(CHECKS[0], run=lambda: CHECKS[0].run(**CHECKS[0].wrong)), CHECKS[1])
    monkeypatch.setattr(registry, "CHECKS", broken)
    assert cli.main(["verify"]) == 1
    assert "FAILED" in capsys.readouterr().out
