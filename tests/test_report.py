"""The report page as text: complete, self-contained, well-formed, and safe whatever the log holds."""

from __future__ import annotations

import math
import platform
import re
from html.parser import HTMLParser
from importlib import metadata

import pytest

import bounds
from bounds.certificate.guarantees import HYPOTHESES
from bounds.cli.main import main
from bounds.logs import example_path
from bounds.report import page

VOID = {"meta", "link", "br", "img", "input"}


class Tree(HTMLParser):
    """Tags with their attributes, and whether they nest; tables as titles and rows, each marked or not."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.words, self.rows = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.rows.append([])
        elif tag == "tr":
            self.rows[-1].append(([], dict(attributes).get("class") == "best"))
        elif tag in ("th", "td"):
            self.rows[-1][-1][0].append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "script" not in self.open and "style" not in self.open:
            self.words.append(data)
        if self.open and self.open[-1] in ("th", "td"):
            self.rows[-1][-1][0][-1] += data

    @property
    def tables(self):
        return [(titles, rows) for (titles, _), *rows in self.rows]

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


MASK = "seq_max_k2<=0.05"


@pytest.fixture(scope="module")
def parts():
    """A log with steps, and everything that a page can hold."""
    log = bounds.example_traces("run")
    return {
        "certificate": bounds.certify(log, mask=MASK, noise_floor=bounds.example_traces()),
        "by_position": bounds.by_position(log),
        "masks": bounds.mask_study(log, mask=MASK),
        "run": bounds.over_time(log),
    }


@pytest.fixture(scope="module")
def whole(parts):
    text = page(**parts, command="trm-bounds certify 'a b.parquet' --html r.html")
    return parts["certificate"], text, Tree(text)


def cells_of(certificate, by_position, masks, run):
    """Every table of a page, from the results themselves; that of versions comes last."""
    noise, libraries = certificate.noise_floor, ("trm-bounds", "numpy", "scipy", "pandas", "matplotlib", "pyarrow")
    versions = [["python", platform.python_version()], *([name, metadata.version(name)] for name in libraries)]
    guaranteed = [certificate.guarantee_cells(measured=measured) for measured in (True, False)]
    return [
        *(cells for cells in guaranteed if cells[1]),
        certificate.bound_cells(),
        certificate.estimate_cells(),
        *([certificate.finding_cells()] if certificate.findings else []),
        *by_position.tables(),
        *masks.tables(),
        *run.tables(),
        *([] if noise is None else noise.tables()),
        (["library", "version"], [(pair, False) for pair in versions]),
    ]


def test_every_cell_of_every_table_is_the_result_s(parts, whole):
    found, expected = whole[2].tables, cells_of(**parts)
    assert [titles for titles, _ in found] == [titles for titles, _ in expected]
    for shown, (_, rows) in zip(found, expected, strict=True):
        assert shown[1] == rows
        assert rows
    assert sum(len(rows) for _, rows in found) > 60


def test_what_a_guarantee_rests_on_is_on_the_page(whole):
    certificate, _, tree = whole
    for hypothesis in HYPOTHESES:
        assert hypothesis in tree.text
    assert "guarantee nothing" in tree.text  # open marks
    for note in certificate.notes():
        assert note.removeprefix("Warning: ") in tree.text or all(h in note for h in HYPOTHESES)


def test_the_declared_range_of_the_rewards_is_on_the_page():
    rows = [{"prompt_id": "p", "rollout_logprobs": [-0.5], "train_logprobs": [-0.6], "reward": 1.0}]
    log = bounds.TraceSet.from_records(rows, horizon=2, reward_range=(-0.375, 1.625))
    assert "-0.375 to 1.625" in Tree(page(bounds.certify(log))).text


def test_each_picture_says_what_its_result_says(parts, whole):
    bars, positions, masks, steps = (a["aria-label"] for a in whole[2].all("svg"))
    assert f"{parts['certificate'].best.name}." in bars
    for said, name in ((positions, "by_position"), (masks, "masks"), (steps, "run")):
        assert parts[name].sentence() in said
    assert all(kind in positions for kind in parts["by_position"].bins.names)


def test_the_command_line_gives_its_mask_and_its_confidence_to_every_section(tmp_path, capsys):
    path, options = tmp_path / "r.html", {"mask": MASK, "confidence": 0.9}
    assert main(["certify", str(example_path("run")), "--mask", MASK, "--confidence", "0.9", "--html", str(path)]) == 0
    capsys.readouterr()
    log = bounds.example_traces("run")
    results = {
        "certificate": bounds.certify(log, **options),
        "by_position": bounds.by_position(log, confidence=0.9),
        "masks": bounds.mask_study(log, **options),
        "run": bounds.over_time(log, **options),
    }
    tree = Tree(path.read_text("utf-8"))
    assert tree.tables == cells_of(**results)
    for result in results.values():
        assert " ".join(result.sentence().split()) in tree.text
    assert results["run"].tables() != bounds.over_time(log, confidence=0.9).tables()  # a mask is seen there


def test_everything_that_the_certificate_says_is_on_the_page(whole):
    certificate, _, tree = whole
    for name in certificate.estimates:
        assert name in tree.text
    for bound in (*certificate.table, *certificate.optimistic):
        assert bound.name in tree.text
    for said in (certificate.sentence(), certificate.heading(), "trm-bounds certify 'a b.parquet' --html r.html"):
        assert " ".join(said.split()) in tree.text
    for warning in certificate.warnings:
        assert warning in tree.text
    for assumption in certificate.assumptions:
        assert str(assumption) in tree.text
    for name in ("trm-bounds", "numpy", "python"):
        assert name in tree.text
    assert f"{certificate.noise_floor.sentence()}" in tree.text


def test_the_page_asks_nobody_for_anything(whole):
    _, text, tree = whole
    assert not re.findall(r'(?:src|href)="(?!#|data:)', text.replace("xlink:href", "href"))
    assert re.findall(r"https?://[^\"'< ]+", text.replace("http://www.w3.org/", "")) == []
    policy = next(a["content"] for a in tree.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_the_page_can_be_used_without_seeing_it(whole):
    _, text, tree = whole
    ids = [a["id"] for _, a in tree.tags if "id" in a]
    assert len(ids) == len(set(ids))
    for link in tree.all("a"):
        assert link["href"].removeprefix("#") in ids
    assert re.findall(r"<h([1-6])", text) == ["1"] + ["2"] * 9
    pictures = tree.all("svg")
    assert len(pictures) == 4
    assert all(a["role"] == "img" and len(a["aria-label"]) > 40 for a in pictures)
    assert text.count("<details>") == len(pictures)
    assert len(tree.all("caption")) == len(tree.all("table")) >= 8
    assert all("scope" in a for a in tree.all("th"))
    assert tree.all("html") == [{"lang": "en"}]


def test_references_inside_pictures_stay_inside_them(whole):
    _, text, tree = whole
    ids = {a["id"] for _, a in tree.tags if "id" in a}
    used = set(re.findall(r"url\(#([^)]+)\)", text)) | set(re.findall(r'xlink:href="#([^"]+)"', text))
    assert used
    assert used <= ids


def test_what_a_log_holds_is_text():
    rows = [
        {"prompt_id": f"<script>alert({i})</script>", "rollout_logprobs": [-1.0], "train_logprobs": [-1.1],
         "reward": i % 2, "weight_version": "<img src=x>", "step": f"<b>{i % 2}</b>"}
        for i in range(6)
    ]  # fmt: skip
    log = bounds.TraceSet.from_records(rows, horizon=4)
    text = page(bounds.certify(log), run=bounds.over_time(log), command="--x '<i>'")
    tree = Tree(text)
    assert len(tree.all("script")) == 1
    assert not tree.all("img") + tree.all("b") + tree.all("i")
    assert "<b>0</b>" in tree.text
    assert "--x '<i>'" in tree.text


@pytest.mark.parametrize("rewards", [True, False])
def test_small_and_odd_logs_get_a_page(rewards):
    """No divergence at all, no rewards, one prompt."""
    rows = [{"prompt_id": "p", "rollout_logprobs": [-0.5] * n, "train_logprobs": [-0.5] * n} for n in (1, 2)]
    if rewards:
        rows = [{**row, "reward": 1.0} for row in rows]
    log = bounds.TraceSet.from_records(rows, horizon=2)
    certificate = bounds.certify(log)
    tree = Tree(page(certificate, by_position=bounds.by_position(log), masks=bounds.mask_study(log)))
    assert certificate.sentence() in tree.text
    assert "Nothing remarkable was seen" not in tree.text


def test_the_sentence_is_coloured_by_what_it_says():
    def log(rewarded, responses=400):
        """theta halves or doubles what is rewarded: a loss, or a gain."""
        rows = []
        for i in range(responses):
            good = i % 2 == 0
            ratio = rewarded if good else 2.0 - rewarded
            rows.append({"prompt_id": str(i), "reward": float(good), "rollout_logprobs": [-0.6931471805599453],
                         "train_logprobs": [-0.6931471805599453 + math.log(ratio)]})  # fmt: skip
        return bounds.certify(bounds.TraceSet.from_records(rows, horizon=1))

    assert 'class="verdict gain"' in page(log(1.5))
    assert 'class="verdict loss"' in page(log(0.5))
    assert 'class="verdict open"' in page(log(1.0))
    for nearly in (1.05, 0.95):  # the point has a sign, the interval has both
        certificate = log(nearly, responses=20)
        assert certificate.improvement.value * (nearly - 1.0) > 0.0
        assert certificate.improvement.low < 0.0 < certificate.improvement.high
        assert 'class="verdict open"' in page(certificate)
