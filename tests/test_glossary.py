"""The glossary has every name that people meet, and says it in few words."""

from __future__ import annotations

import json

import pytest

import bounds
from bounds.certificate.findings import Kind
from bounds.cli.main import main
from bounds.glossary import GLOSSARY, term
from bounds.masks.statistics import STATISTICS, TOKEN_STATISTICS
from bounds.questions.metrics import METRICS
from bounds.results import Standing
from bounds.rules.profile import FIELDS

MASK = "seq_max_k2<=0.05"


def printed():
    """Every name that a result has as a key or in a table, from the embedded logs."""
    log, run = bounds.example_traces(), bounds.example_traces("run")
    certificate = bounds.certify(log, mask=MASK)
    found = {*certificate.to_dict(), *certificate.estimates, *certificate.guarantees.intervals}
    found |= {*bounds.plan(gain=0.05, kl_seq=0.02, reward=0.5, runs=20).to_dict()}
    two, three = bounds.compare(log, log), bounds.compare(log, log, log)
    found |= {*two.to_dict(), *two.estimates, *two.to_dict()["estimates"]["kl_seq"], *three.to_dict()}
    found |= {*bounds.over_time(run, mask=MASK).steps.rows["0"], *certificate.table.profile}
    return found


@pytest.mark.parametrize(
    "names",
    [printed(), [r.name for r in bounds.RULES], FIELDS, [k.value for k in Kind], [s.label for s in Standing],
     STATISTICS, TOKEN_STATISTICS, METRICS],
    ids=["results", "rules", "fields", "kinds", "standings", "statistics", "of tokens", "metrics"],
)  # fmt: skip
def test_every_name_is_in_the_glossary(names):
    assert not set(names) - set(GLOSSARY)


def test_a_term_is_short_and_ends_its_sentences():
    for name, meaning in GLOSSARY.items():
        assert meaning.text.endswith("."), name
        assert meaning.text[0].isupper() or meaning.text.startswith("chi2"), name
        assert 15 <= len(meaning.text) <= 330, name


def test_a_name_is_found_as_it_is_typed_and_a_wrong_one_is_answered():
    assert term("--kl-seq") is term("kl_seq")
    with pytest.raises(KeyError, match="did you mean 'kl_seq'"):
        term("kl_sec")


def test_the_command_prints_a_name_or_all(capsys):
    assert main(["glossary", "kl_seq", "L'"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"kl_seq: {GLOSSARY['kl_seq'].text}"
    assert main(["glossary", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == set(GLOSSARY)
    assert main(["glossary", "nothing_of_this"]) == 2
