"""The report page as text: complete, self-contained, well-formed, and safe whatever the log holds."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser

import pytest

import bounds
from bounds.certificate.guarantees import HYPOTHESES
from bounds.cli.main import main
from bounds.figures.drawing import upward
from bounds.logs import example_path
from bounds.report import page, typeset_text

VOID = {"meta", "link", "br", "img", "input"}


class Tree(HTMLParser):
    """Tags with their attributes, and whether they nest; tables as titles and rows (cells, marked, told under)."""

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
            self.rows[-1].append([[], dict(attributes).get("class") == "best", ""])
        elif tag in ("th", "td"):
            self.rows[-1][-1][0].append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "script" not in self.open and "style" not in self.open:
            self.words.append(data)
        if {"th", "td"} & set(self.open) and "small" in self.open:
            self.rows[-1][-1][2] += data
        elif {"th", "td"} & set(self.open):
            self.rows[-1][-1][0][-1] += data.strip("\n")

    @property
    def tables(self):
        return [(titles, rows) for (titles, _, _), *rows in self.rows]

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self):
        return " ".join("".join(self.words).split())


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


UNDER_THE_NAME = {"family", "standing", "how", "from", "filled in", "what it does"}


def as_on_the_page(cells):
    """What decides in columns, the rest under the name."""
    titles, rows = cells
    kept = [k for k, title in enumerate(titles) if title not in UNDER_THE_NAME]
    under = [k for k in range(len(titles)) if k not in kept]
    folded = [
        [[typeset_text(row[k]) for k in kept], marked, typeset_text("; ".join(row[k] for k in under if row[k]))]
        for row, marked in rows
    ]
    return [typeset_text(titles[k]) for k in kept], folded


def cells_of(certificate, by_position, masks, run):
    """Every table of a page but the first, from the results themselves."""
    noise = certificate.noise_floor
    found = [
        *([certificate.finding_cells()] if certificate.findings else []),
        certificate.bound_cells(),
        *by_position.tables(),
        *masks.tables(),
        *run.tables(),
        *([] if noise is None else noise.tables()),
        *(certificate.guarantee_cells(measured=measured) for measured in (True, False)),
        certificate.estimate_cells(),
    ]
    return [as_on_the_page(cells) for cells in found]


def test_every_cell_of_every_table_is_the_result_s(parts, whole):
    (_, first), *found = whole[2].tables
    assert found == cells_of(**parts)
    assert sum(len(rows) for _, rows in found) > 60
    kl = parts["certificate"].estimates["kl_seq"]
    assert [["KL of a response, nats", *kl.texts()], False, "estimate; kl_seq"] in first


def test_what_a_guarantee_rests_on_is_on_the_page(whole):
    certificate, _, tree = whole
    for hypothesis in HYPOTHESES:
        assert typeset_text(hypothesis) in tree.text
    assert "guarantee nothing" in tree.text  # open marks
    for note in certificate.notes():
        assert typeset_text(note) in tree.text or all(h in note for h in HYPOTHESES)


def test_the_declared_range_of_the_rewards_is_on_the_page():
    rows = [{"prompt_id": "p", "rollout_logprobs": [-0.5], "train_logprobs": [-0.6], "reward": 1.0}]
    log = bounds.TraceSet.from_records(rows, horizon=2, reward_range=(-0.375, 1.625))
    assert "−0.375 to 1.625" in Tree(page(bounds.certify(log))).text


def test_each_picture_says_what_its_result_says(parts, whole):
    pictures = [a["aria-label"] for a in whole[2].all("svg")]
    for name, k in (("by_position", 0), ("masks", 2), ("run", 4)):
        for picture in pictures[k : k + 2]:  # for a wide column, and for a phone
            assert parts[name].sentence() in picture
    assert all(kind in pictures[0] for kind in parts["by_position"].bins.names)
    change, bars = (a["aria-label"] for a in whole[2].all("figure") if "aria-label" in a)
    assert "Prompts like these −" in change
    assert f"KL of a response {upward(parts['certificate'].table['trajectory_kl'].value)}" in bars


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
    assert tree.tables[1:] == cells_of(**results)
    for result in results.values():
        assert typeset_text(" ".join(result.sentence().split())) in tree.text
    assert results["run"].tables() != bounds.over_time(log, confidence=0.9).tables()  # a mask is seen there


def test_everything_that_the_certificate_says_is_on_the_page(whole):
    certificate, _, tree = whole
    for name in certificate.estimates:
        assert name in tree.text
    for bound in (*certificate.table, *certificate.optimistic):
        assert bound.name in tree.text
    for text in (certificate.sentence(), certificate.verdict.sentence, *certificate.warnings):
        assert typeset_text(" ".join(text.split())) in tree.text
    assert "trm-bounds certify 'a b.parquet' --html r.html" in tree.text
    for assumption in certificate.assumptions:
        assert typeset_text(str(assumption)) in tree.text
    for name in ("trm-bounds", "numpy", "python"):
        assert name in tree.text
    assert typeset_text(certificate.noise_floor.sentence()) in tree.text


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
    assert re.findall(r"<h([1-6])", text) == ["1"] + ["2"] * 14
    pictures = tree.all("svg")
    assert len(pictures) == 6
    assert all(a["role"] == "img" and len(a["aria-label"]) > 40 for a in pictures)
    assert text.count("<details>") == 4
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
    assert not tree.all("img") + tree.all("b") + [a for a in tree.all("i") if "class" not in a]
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
    assert typeset_text(certificate.sentence()) in tree.text
    assert "Nothing remarkable was seen" not in tree.text


def test_the_verdict_leads_in_its_colour():
    def log(rewarded):
        """theta halves or doubles what is rewarded: a loss, or a gain."""
        rows = []
        for i in range(400):
            good = i % 2 == 0
            ratio = rewarded if good else 2.0 - rewarded
            rows.append({"prompt_id": str(i), "reward": float(good), "rollout_logprobs": [-0.6931471805599453],
                         "train_logprobs": [-0.6931471805599453 + math.log(ratio)]})  # fmt: skip
        return bounds.certify(bounds.TraceSet.from_records(rows, horizon=1, train_policy="held-out"))

    for certificate, hue in ((log(1.5), "good"), (log(0.5), "bad"), (bounds.certify(bounds.example_traces()), "open")):
        text = page(certificate)
        assert f'<body style="--verdict: var(--{hue})">' in text
        word = certificate.verdict.word
        assert f"<h1>{word.sign} {word}</h1>" in text
        assert text.index(f"<h1>{word.sign}") < text.index('class="intervals"') < text.index("What to do")


def test_what_is_required_is_on_the_page(tmp_path, capsys):
    path = tmp_path / "r.html"
    assert main(["certify", "--require", "improvement>=0", "--require", "kl_seq<=1", "--html", str(path)]) == 3
    capsys.readouterr()
    text = Tree(path.read_text("utf-8")).text
    assert "What was required" in text
    assert re.search(r"improvement>=0 is undecided: its lower limit is −0", text)
    assert re.search(r"kl_seq<=1 holds: its upper limit is", text)


def test_names_lead_to_their_meaning_and_only_those(whole):
    certificate, _, tree = whole
    told = {a["id"].removeprefix("term-") for a in tree.all("dt")}
    assert {b.name for b in certificate.table} | set(certificate.estimates) <= told
    assert {a["href"].removeprefix("#term-") for a in tree.all("a") if a.get("class") == "term"} == told
    assert "T(T−1) ε^2" in tree.text  # its formula, typeset


@pytest.mark.parametrize("columns", ["copied", "no rewards"])
def test_nothing_is_drawn_where_nothing_was_measured(columns):
    text = page(bounds.certify(bounds.TraceSet.from_records(ODD[columns], horizon=2)))
    assert 'class="intervals"' not in text
    assert "What to do" in text


ROW = {"rollout_logprobs": [-0.5, -0.25], "train_logprobs": [-0.55, -0.2]}
ODD = {
    "copied": [
        {**ROW, "train_logprobs": ROW["rollout_logprobs"], "prompt_id": str(i), "reward": i % 2} for i in range(40)
    ],
    "no rewards": [{**ROW, "prompt_id": str(i)} for i in range(40)],
}
