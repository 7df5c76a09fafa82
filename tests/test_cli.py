"""The command line: what is printed, exit codes, no traceback for bad input."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import bounds
from bounds.cli import COMMANDS
from bounds.cli.main import main, trm_bounds
from bounds.logs import example_path
from bounds.questions.mask_study import write_masks

PAPER = ["bstar", "--T", "4096", "--delta", "1e-4", "--epsilon", "5e-3", "--kl-seq", "0.01", "--tv-seq", "0.05"]


def run(capsys, *arguments):
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_bstar_prints_every_rule_and_both_winners(capsys):
    code, out, err = run(capsys, *PAPER, "--full")
    assert (code, err) == (0, "")
    for rule in bounds.RULES:
        assert rule.name in out  # evaluated, or said not to be
    for number in (" 839 ", " 82 ", " 80 ", " 35 ", " 24.8 ", " 8.2 ", " 4.1 ", " 20.5 ", " 0.01 "):
        assert number in out
    assert "the published B* is 4.1 by mixed_tv" in out
    assert "absolutely_continuous = True" in out
    assert "\x1b[" not in out


def test_bstar_answers_first(capsys):
    """The smallest bound, what was given, the next three; what would help where all say nothing is proved to."""
    code, out, err = run(capsys, *PAPER)
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0] == "0.01         is the most that the surrogate can be off (proved)"
    assert "given up to 4096 tokens; a token: KL <= 0.0001, TV <= 0.005; a response: KL 0.01" in " ".join(out.split())
    assert "published  the paper's best bound is 4.1: above 1 it says nothing" in out
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 15
    code, out, _ = run(capsys, "bstar", "--T", 32768, "--delta", "3e-4")
    assert out.startswith("◇ 9.84       is the smallest bound: on rewards in [0, 1] it says nothing\n")
    assert max(map(len, out.splitlines())) <= 80
    remedy = r"keep the KL of a token below (\S+) \(largest delta --target (\S+)\)"
    value, target = re.search(remedy, " ".join(out.split())).groups()
    assert bounds.unified(T=32768, delta=float(value)).best.value <= float(target) == 1.0
    assert "measure the KL of a response" in out


def test_bstar_json(capsys):
    code, out, _ = run(capsys, *PAPER, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["profile"]["delta"] == 1e-4
    assert found["b_star"]["name"] == "trajectory_kl"
    assert found["b_star"]["value"] == pytest.approx(0.01, rel=1e-12)
    assert found["b_star_published"]["value"] == pytest.approx(4.096, rel=1e-12)
    assert {b["name"] for b in found["bounds"] + found["withheld"]} == {r.name for r in bounds.RULES}
    assert set(found["bounds"][0]) >= {"name", "value", "family", "source", "standing", "assumes", "vacuous"}


def test_bstar_from_t_and_delta(capsys):
    found = json.loads(run(capsys, "bstar", "--T", 4096, "--delta", "1e-4", "--json")[1])
    values = {b["name"]: b["value"] for b in found["bounds"]}
    assert found["b_star_published"]["value"] == pytest.approx(34.946091886296671, rel=1e-12)
    assert found["b_star"]["value"] == pytest.approx(0.4096, rel=1e-12)
    assert values["classical"] == pytest.approx(1677.312, rel=1e-12)


def test_bstar_infinite_values_are_null_and_vacuous(capsys):
    found = json.loads(run(capsys, "bstar", "--T", 10, "--kl-seq", "inf", "--json")[1])
    bound = next(b for b in found["bounds"] if b["name"] == "trajectory_kl")
    assert bound["value"] is None
    assert bound["vacuous"] is True


def test_bstar_profile_file_and_options(capsys, tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("mean_kl,mean_tv\n0.001,0.01\n0.002,0.02\n")
    code, out, _ = run(capsys, "bstar", "--profile", path, "--delta", 0.1, "--json")
    assert code == 0
    assert json.loads(out)["profile"] | {} == {
        "T": 2, "delta": 0.1, "mean_kl": [0.001, 0.002], "mean_tv": [0.01, 0.02], "reward_range": [0.0, 1.0],
        "absolutely_continuous": True,
    }  # fmt: skip
    code, out, _ = run(
        capsys, "bstar", "--T", 3, "--delta", 0.1, "--support-may-differ", "--reward-range", 0, 2, "--full"
    )
    assert "Not evaluated (the proof needs theta << roll): classical, coupling" in out
    assert "trajectory_kl" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bstar", "--T", 10, "--epsilon", 1.5], "epsilon must be a number in [0, 1], got epsilon=1.5"),
        (["bstar", "--T", 10], "a bound needs at least one divergence"),
        (["bstar", "--delta", 0.1], "bstar needs --T and a divergence"),
        (["bstar", "--json"], "bstar needs --T and a divergence, or --profile FILE; for example: trm-bounds bstar"),
        (["bstar", "--T", 0.5, "--delta", 0.1], "T must be a whole number"),
        (["bstar", "--T", 10, "--delta", "x"], "invalid value for '--delta': must be a number, got 'x'"),
        (["bstar", "--T", 2**53 + 1, "--delta", 0.1], "T must be a whole number"),
        (["bstar", "--T", 10, "--delta", "0_1"], "must be a number, got '0_1'"),
        (["bstar", "--profile", "nowhere.csv"], "nowhere.csv"),
        (["certify", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (["certify", "--mask", "seq_mean_k3<=1.001"], "looks like a bound on a ratio"),
        (["certify", "--assume", "delta"], "--assume must be NAME=VALUE such as delta=1e-3, got 'delta'"),
        (["certify", "--assume", "delta=x"], "--assume delta must be a number, got 'x'"),
        (["certify", "--require", "b_star"], "--require must be QUANTITY<=VALUE"),
        (["certify", "--require", "b_sta<=1"], "unknown quantity 'b_sta'; did you mean 'b_star'"),
        (["certify", "--confidence", 2], "confidence must be a number strictly between 0 and 1"),
        (["certify", "--horizon", 10], "more than horizon=10"),
        (["certify", "--format", "x"], "unknown format 'x'"),
        (["figures", "comparisom"], "unknown figure 'comparisom'; did you mean 'comparison'"),
        (["nothing"], "unknown command 'nothing' (trm-bounds --help)"),
        (["certify", "--confidence", 95], "got confidence=95.0 (for 95% write 0.95)"),
        (["certify", "--require", "improvement>=x"], "--require improvement>=: must be a number, got 'x'"),
        (["certify", "--require", "improvement>0"], "did you mean 'improvement>=0'?"),
        (["certify", "--require", "b_star=0.1"], "did you mean 'b_star<=0.1'?"),
        (["certify", "--mask", "seq_max_k2<0.05"], "did you mean seq_max_k2<=0.05?"),
    ],
)
def test_bad_input_exits_2_with_one_clear_line(capsys, arguments, message):
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert out == ""


def test_without_a_command_the_help_is_shown(capsys):
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    assert out == run(capsys, "--help")[1]


def test_certify_without_path_is_the_embedded_example(capsys):
    code, out, _ = run(capsys, "certify", "--full")
    assert code == 0
    assert "96 responses to 24 prompts, 13961 policy tokens, horizon 256" in out
    assert "trajectory_kl" in out
    assert "optimistic" in out
    found = json.loads(run(capsys, "certify", "--json")[1])
    assert found == bounds.certify(bounds.example_traces()).to_dict()


def test_certify_options(capsys, tmp_path):
    path = tmp_path / "log.jsonl"
    lines = [
        {"rollout_logprobs": [-1.0, None], "train_logprobs": [-1.0, -1.0], "reward": 3.0, "prompt_id": "a"},
        {"rollout_logprobs": [-1.0, -0.5], "train_logprobs": [-1.1, 0.05], "reward": 5.0, "prompt_id": "b"},
    ]
    path.write_text("".join(json.dumps(x) + "\n" for x in lines))
    assert run(capsys, "certify", path, "--reward-range", 0, 5)[0] == 2
    code, out, err = run(
        capsys, "certify", path, "--reward-range", 0, 5, "--drop-missing", "--logprob-dtype", "bfloat16",
        "--horizon", 4, "--confidence", 0.9, "--json", "--assume", "absolutely_continuous=true",
    )  # fmt: skip
    found = json.loads(out)
    assert code == 0
    assert found["responses"] == 1
    assert found["estimates"]["reward"]["value"] == 5.0
    assert found["estimates"]["kl_seq"]["confidence"] == 0.9
    assert any("1 of 2 responses have missing values and were dropped" in w for w in found["warnings"])
    assert err == ""


@pytest.mark.parametrize(
    ("requirement", "code"),
    [
        ("b_star<=0.5", 0),
        ("b_star<=1e-9", 1),
        ("b_star_upper<=0.1", 0),
        ("b_star_upper<=0.086", 0),  # its two-sided upper limit is .0869
        ("b_star_upper<=0.08", 3),
        ("b_star_published<=1000", 3),  # optimistic: a sample maximum is no supremum
        ("kl_seq<=0.08", 3),  # the estimate is .072, its upper limit is not
        ("kl_seq<=0.09", 0),
        ("acceptance>=0.5", 0),
        ("mean_ratio >= 2", 1),
        ("max_k2<=100", 3),  # a sample maximum has no upper limit
        ("max_k2<=0.1", 1),
        ("improvement>=-0.15", 0),  # two-sided it would be -.168
        ("improvement>=0", 3),
        ("improvement>=0.5", 1),
    ],
)
def test_requirements(capsys, requirement, code):
    found, out, err = run(capsys, "certify", "--require", requirement)
    assert (found, err) == (code, "no PATH: this is the embedded log example.parquet\n")
    words = {0: "holds: its", 1: "does not hold: its", 3: "is undecided: "}
    assert re.search(rf"^required: \S+ {words[code]}", out, re.MULTILINE)
    found, out, err = run(capsys, "certify", "--json", "--require", requirement, "--require", "reward<=2")
    assert json.loads(out)["b_star"]
    assert (found, err.count("required: ")) == (code, 2)


def test_the_worst_of_several_requirements_decides(capsys):
    held, refuted, open_ = "b_star<=1", "b_star<=0", "improvement>=0"
    for several, code in (((held, open_), 3), ((open_, refuted), 1), ((held, refuted), 1), ((held, held), 0)):
        assert run(capsys, "certify", *(w for each in several for w in ("--require", each)))[0] == code


def test_what_a_log_refutes_is_reported_and_meets_nothing(capsys):
    code, out, _ = run(capsys, "certify", "--assume", "delta=0.001")
    assert code == 0
    assert "the log refutes delta=0.001:" in out
    assert run(capsys, "certify", "--assume", "delta=0.001", "--require", "b_star<=0.5")[0] == 3


def test_no_reward_requirement_does_not_hold(capsys, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"rollout_logprobs": [-1], "train_logprobs": [-1.1]}\n')
    code, out, _ = run(capsys, "certify", path, "--require", "reward>=0")
    assert code == 3
    assert "required: reward>=0 is undecided: the log has no rewards" in out


def test_underscores_interrupts_and_terminals_without_unicode(capsys, monkeypatch):
    assert run(capsys, "bstar", "--T", 10, "--kl_seq", 0.1)[0] == 0
    import bounds.proof

    def stop(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(bounds.proof, "verify", stop)
    assert run(capsys, "verify")[0] == 130
    command = [sys.executable, "-m", "bounds", *PAPER]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    assert "the paper's best bound is 4.1" in out


def test_figures_writes_what_it_names(capsys, tmp_path):
    code, out, _ = run(capsys, "figures", "scaling", "--out", tmp_path / "new")
    assert code == 0
    assert [Path(line).name for line in out.split()] == [
        "scaling.png",
        "scaling.dark.png",
        "scaling.pdf",
        "scaling.csv",
    ]
    assert all(Path(line).stat().st_size > 1000 for line in out.split())


# --- help, mistakes, completion ----------------------------------------------------------------------------

NAMES = list(COMMANDS)


def declared(name):
    """The options of a command, by the name that help shows first."""
    command = trm_bounds.get_command(click.Context(trm_bounds), name)
    options = command.get_params(click.Context(command, help_option_names=["-h", "--help"]))
    return {option.opts[0]: option for option in options if isinstance(option, click.Option)}


@pytest.mark.parametrize("command", ["", *NAMES])
def test_help_fits_one_screen(capsys, command):
    code, out, err = run(capsys, *filter(None, [command]), "--help")
    assert (code, err) == (0, "")
    lines = out.rstrip("\n").split("\n")
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(f"Usage: trm-bounds {command or '[OPTIONS] COMMAND'}")
    assert "Example:" in lines[-2]
    assert f"  trm-bounds {command}" in lines[-1] or "Completion (bash):" in lines[-1]
    listed = NAMES if not command else ["--help", "--help-all"]
    assert all(re.search(rf"^  .*{name}\b", out, re.MULTILINE) for name in listed)


@pytest.mark.parametrize("command", NAMES)
def test_help_all_lists_every_option(capsys, command):
    options = declared(command)
    assert len(options) > 2
    code, out, _ = run(capsys, command, "--help-all")
    assert code == 0
    assert max(map(len, out.split("\n"))) <= 80
    for option in options:
        assert re.search(rf"^  {re.escape(option)}\b", out, re.MULTILINE), option
    short = run(capsys, command, "--help")[1]
    rare = {name for name, option in options.items() if getattr(option, "rare", False)}
    assert {name for name in options if re.search(rf"^  {name}\b", short, re.MULTILINE)} == set(options) - rare
    if command in ("certify", "bstar", "masks"):
        assert rare


def test_examples_in_help_are_commands(capsys):
    """Each is understood; those that need no log of one's own also run."""
    for name in NAMES:
        example = run(capsys, name, "--help")[1].rstrip("\n").split("\n")[-1].strip()
        words = shlex.split(example)
        assert words[:2] == ["trm-bounds", name]
        assert trm_bounds.get_command(click.Context(trm_bounds), name).make_context(name, words[2:]).params
        if name in ("bstar", "largest", "formats"):
            assert run(capsys, *words[1:])[0] == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["certify", "--horizn", 4], "unknown option '--horizn'; did you mean '--horizon'?"),
        (["certify", "--nois_floor=x"], "unknown option '--nois_floor'; did you mean '--noise-floor'?"),
        (["largest", "delta", "--targt", 1], "unknown option '--targt'; did you mean '--target'? (trm-bounds largest"),
        (["bstar", "-T", 4], "unknown option '-T'; did you mean '--T'? (trm-bounds bstar --help)"),
        (["verify", "--zzz"], "unknown option '--zzz' (trm-bounds verify --help)"),
        (["certify", "-horizon", 4], "unknown option '-horizon'; did you mean '--horizon'? (trm-bounds c"),
        (["--versio"], "unknown option '--versio'; did you mean '--version'? (trm-bounds --help)"),
        (["certfy", "--horizon", 3], "unknown command 'certfy'; did you mean 'certify'? (trm-bounds --help)"),
        (["bstar", "--T"], "--T needs a value (trm-bounds bstar --help)"),
        (["bstar", "--T", "--delta", 1], "--T needs a value (trm-bounds bstar --help)"),
        (["certify", "--html", "--json"], "--html needs a value (trm-bounds certify --help)"),
        (["bstar", "--T", "--", 1], "--T needs a value (trm-bounds bstar --help)"),
        (["bstar", "--reward-range", 1], "--reward-range needs 2 values (trm-bounds bstar --help)"),
        (["bstar", "--reward-range", 1, "--json"], "--reward-range needs 2 values (trm-bounds bstar --help)"),
        (["largest", "delta", "--target"], "--target needs a value (trm-bounds largest --help)"),
        (["largest", "delta"], "missing option '--target' (trm-bounds largest --help)"),
        (["verify", "now"], "got unexpected extra argument (now) (trm-bounds verify --help)"),
        (["verify", "--json=1"], "--json takes no value, got '1' (trm-bounds verify --help)"),
        (["certify", "--engine", "rai"], "invalid value for '--engine': 'rai' is not one of 'local', 'ray' (trm"),
        (["certify", "--by-step", "--html", "x"], "unknown option '--html'; did you mean '--help'? (trm-bounds steps"),
        (["certify", "--format", "verl-text"], "format 'verl-text' is not read: this is verl's rollout_data_dir dump"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_that_says_what_was_meant(capsys, arguments, line):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"trm-bounds: error: {line}")
    assert err.count("\n") == 1


def test_negative_numbers_are_values(capsys):
    found = json.loads(run(capsys, "bstar", "--T", 8, "--delta", ".1", "--reward-range", "-1e-3", "1", "--json")[1])
    assert found["profile"]["reward_range"] == [-0.001, 1.0]


def test_bstar_without_options_is_the_example_of_the_paper_explained(capsys):
    code, out, err = run(capsys, "bstar")
    assert (code, err) == (0, "")
    words, _, answer = out.partition("\n0.01 ")
    command = words.split("\n")[-1]
    assert command.startswith("trm-bounds bstar --T 4096 --delta 1e-4 ")
    assert run(capsys, *shlex.split(command)[1:])[1] == f"0.01 {answer}"
    assert json.loads(run(capsys, *shlex.split(command)[1:], "--json")[1]) == json.loads(
        run(capsys, *PAPER, "--json")[1]
    )


def test_what_largest_prints_is_proved(capsys):
    for quantity in ("delta", "epsilon", "kl_seq"):
        for line in run(capsys, "largest", quantity, "--target", 0.1, 0.5, 1, "--T", 10, 1000, 4096)[1].splitlines():
            target, T, value = re.match(r"\|Error\| <= (\S+) at T = (\d+) is .* = (\S+)  ", line).groups()
            assert bounds.unified(T=int(T), **{quantity: float(value)}).best.value <= float(target)
            assert len(re.sub(r"e.*|\.|^0\.0*", "", value)) <= 3
    out = run(capsys, "largest", "delta", "--target", 0.123456789, "--T", 8)[1]
    assert out.startswith("|Error| <= 0.123456789 at T = 8 is")


def complete(capsys, monkeypatch, typed, shell="bash"):
    """What a shell is told for a line up to the cursor: "kind,word", a line each."""
    words = f"trm-bounds {typed}".split(" ")
    monkeypatch.setenv("_TRM_BOUNDS_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    return out.split()


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("", {f"plain,{name}" for name in NAMES}),
        ("ce", {"plain,certify"}),
        ("no", set()),
        ("nothing a", set()),
        ("certify --lo", {"plain,--logprob-dtype"}),
        ("certify --by", set()),
        ("certify --engine ", {"plain,local", "plain,ray"}),
        ("certify --format s", {"plain,slime", "plain,sglang"}),
        ("certify a", {"file,a"}),
        ("certify --train a b", {"file,b"}),
        ("certify --mask x a", {"file,a"}),
        ("certify --noise-floor a", {"file,a"}),
        ("figures --out ", {"dir,"}),
        ("figures com", {"plain,comparison"}),
        ("largest ch", {"plain,chi2_max"}),
        ("formats --recipe v", {"plain,verl"}),
    ],
)
def test_completion(capsys, monkeypatch, typed, found):
    assert set(complete(capsys, monkeypatch, typed)) == found


@pytest.mark.parametrize(
    ("shell", "text"), [("bash", "complete -o"), ("zsh", "#compdef trm-bounds"), ("fish", "--command trm-bounds")]
)
def test_completion_scripts(capsys, monkeypatch, shell, text):
    monkeypatch.setenv("_TRM_BOUNDS_COMPLETE", f"{shell}_source")
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    assert text in out


def test_completion_in_bash():
    """As a shell does it: the script is loaded, then its function is called."""
    script = 'eval "$(_TRM_BOUNDS_COMPLETE=bash_source trm-bounds)"; complete -p trm-bounds > /dev/null || exit 1\n'
    script += "COMP_WORDS=(trm-bounds steps --ti); COMP_CWORD=2; _trm_bounds_completion trm-bounds; echo $COMPREPLY"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    bash = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env={**os.environ, "PATH": path})
    assert (bash.returncode, bash.stdout, bash.stderr) == (0, "--time-uniform\n", "")


def test_version(capsys):
    assert run(capsys, "--version")[1] == f"trm-bounds {bounds.__version__}\n"


def test_masks_writes_what_it_keeps_part_by_part(capsys, tmp_path):
    import pyarrow.parquet as pq

    log, limit = pq.read_table(example_path()), "seq_max_k2<=0.05"
    for name, part in (("1", log.slice(0, 40)), ("2", log.slice(40))):
        pq.write_table(part, tmp_path / f"{name}.parquet")
    files = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    assert len(list(bounds.open_log(files))) == 2
    code, out, _ = run(capsys, "masks", *files, "--horizon", 256, "--mask", limit, "--write", tmp_path / "k", "--json")
    assert code == 0
    traces, mask = bounds.example_traces(), bounds.Mask.parse(limit)
    write_masks(traces, mask, tmp_path / "whole")
    kept, whole = (pq.read_table(tmp_path / name).drop_columns("place") for name in ("k", "whole"))
    assert kept.equals(whole)
    assert kept["row"].to_pylist() == list(range(96))
    found, expected = json.loads(out)["effect"], bounds.mask_study(traces, mask=mask).to_dict()
    for name, end in itertools.product(("lower", "acceptance"), ("value", "low", "high")):
        assert found[name][end] == pytest.approx(expected["effect"][name][end], rel=1e-9)
    assert json.loads(run(capsys, "masks", "--mask", limit, "--json")[1]) == expected


def test_as_a_process():
    """The installed command, python -m bounds, and a reader that stops early."""
    command = [sys.executable, "-m", "bounds", *PAPER]
    assert "the paper's best bound is 4.1" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    script = Path(sys.executable).with_name("trm-bounds")
    assert (
        "the paper's best bound is 4.1"
        in subprocess.run([script, *PAPER], capture_output=True, text=True, check=True).stdout
    )
    piped = subprocess.run(f"{script} certify --json | head -c 10", shell=True, capture_output=True, text=True)
    assert piped.stdout == '{"response'
    assert "Traceback" not in piped.stderr
    bad = subprocess.run([script, "bstar", "--T", "1", "--delta", "-1"], capture_output=True, text=True)
    assert bad.returncode == 2
    assert bad.stderr.startswith("trm-bounds: error: delta must be")


def test_certify_writes_one_page_and_never_over_another(capsys, tmp_path):
    path = tmp_path / "report.html"
    code, out, _ = run(capsys, "certify", "--mask", "seq_max_k2<=0.05", "--html", path)
    assert code == 0
    text = path.read_text()
    assert f"trm-bounds certify --mask &#39;seq_max_k2&lt;=0.05&#39; --html {path}" in text
    assert "13961 policy tokens" in text
    assert "Where in the response" in text
    assert "Step by step" not in text
    assert out.startswith("◇ UNDECIDED")  # the answer is printed all the same
    before = path.read_bytes()
    assert run(capsys, "certify", "--confidence", 0.9, "--html", path)[0] == 2
    assert path.read_bytes() == before
    code, out, _ = run(capsys, "certify", "--confidence", 0.9, "--html", path, "--force", "--json")
    assert (code, json.loads(out)["improvement"]["confidence"]) == (0, 0.9)
    assert "90% interval" in path.read_text()
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_the_page_of_half_a_log_is_of_that_half(capsys, tmp_path):
    """What the options leave out of the log, the second reading leaves out, too."""
    code, out, _ = run(capsys, "certify", "--split", "--html", tmp_path / "r.html", "--json")
    assert code == 0
    responses = json.loads(out)["responses"]
    assert responses < 96
    assert f"{responses} responses to" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--by-step"], "unknown option '--html'"),
        (["--objectives"], "(trm-bounds objectives --help)"),
        (["nowhere.jsonl"], "nowhere.jsonl: no such file"),
    ],
)
def test_no_page_is_left_where_there_is_nothing_to_say(capsys, tmp_path, arguments, message):
    code, out, err = run(capsys, "certify", *arguments, "--html", tmp_path / "r.html")
    assert (code, out) == (2, "")
    assert message in err
    assert list(tmp_path.iterdir()) == []
    assert "no such folder" in run(capsys, "certify", "--html", tmp_path / "no" / "r.html")[2]


def test_steps_without_path_is_the_embedded_run(capsys):
    out = run(capsys, "steps", "--json")[1]
    assert json.loads(out) == bounds.over_time(bounds.example_traces("run")).to_dict()
    assert run(capsys, "certify", "--by-step", "--json")[1] == out
    assert run(capsys, "steps", "--limit", 1e-9)[0] == 1
    assert run(capsys, "steps", "--limit", 1e9)[0] == 0
    assert run(capsys, "steps", "--limit", 2)[0] == 3  # up to 2.93 at step 135, and from 0


def test_steps_answer_first(capsys):
    code, out, err = run(capsys, "steps")
    lines = out.rstrip().splitlines()
    assert (code, err) == (0, "no PATH: this is the embedded log run.parquet\n")
    assert lines[0] == "▼ LOST AT 15  KL of a response may be above 0.5 at step 15 (up to 0.404 at step"
    assert lines[1].strip() == "10)"
    assert "since      above it at 4 of 36 later steps, last at 175 (lowest at step 40:" in out
    assert "to do      resume from step 10, and sync the weights more often" in out
    assert max(map(len, lines)) <= 80
    assert lines[-1].split() == ["195", "0.11", "0.217", "0.0259", "-0.449", "to", "0.425"]
    assert run(capsys, "steps", "--limit", 9)[1].startswith("▲ WITHIN     the KL of a response is at most 9 at all 40")
    assert "surrogate_gain" in run(capsys, "steps", "--full")[1]


def test_objectives(capsys):
    out = run(capsys, "objectives", "--mask", "seq_max_k2<=0.05", "--json")[1]
    assert json.loads(out)["objectives"]
    assert run(capsys, "certify", "--objectives", "--mask", "seq_max_k2<=0.05", "--json")[1] == out


def test_several_values_are_one_option_repeated(capsys):
    together = run(capsys, "largest", "delta", "--target", 0.1, 0.5, "--T", 8, 16, "--json")
    apart = run(capsys, "largest", "--T=8", "--T", 16, "--target=0.1", "delta", "--target", 0.5, "--json")
    assert together == apart
    assert len(json.loads(apart[1])["answers"]) == 4
    assert "must be" in run(capsys, "largest", "delta", "--T", 8, "--target", 1, "-1e-3")[2]  # a value, no option


def test_train_takes_every_path_that_follows(capsys, tmp_path):
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).write_text("")
    *_, err = run(capsys, "certify", *(tmp_path / n for n in "ab"), "--train", *(tmp_path / n for n in "cd"))
    assert "no such file" not in err
    assert run(capsys, "certify", "--train", tmp_path / "c")[2] == (
        "trm-bounds: error: --train needs PATH, the half that the rollout policy sampled (write PATH first)\n"
    )


def test_help_of_figures_names_them_all(capsys):
    from bounds.figures import FIGURES
    from bounds.figures.tables import TABLES

    out = " ".join(run(capsys, "figures", "--help")[1].split())
    assert f"NAME is a figure ({', '.join(FIGURES)}) or a table ({', '.join(TABLES)});" in out


@pytest.mark.parametrize(
    ("arguments", "redirected", "code"),
    [
        ("bstar", ">&-", 0),
        ("certify --require 'b_star<=1e-9'", ">&-", 1),
        ("bstar --help", ">&-", 0),
        ("certify", "2>&-", 0),
        ("bstar --dleta 1", "2>&-", 2),
        ("bstar", ">/dev/full", 2),
        ("certify --json", "| head -c 1", 0),
        ("bstar --help", "| true", 0),
    ],
)
def test_no_traceback_where_nobody_reads(arguments, redirected, code):
    command = f"set -o pipefail; {sys.executable} -m bounds {arguments} {redirected}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    assert "warning:" not in done.stdout


def test_help_imports_nothing_heavy():
    heavy = {
        "scipy",
        "pandas",
        "pyarrow",
        "msgspec",
        "matplotlib",
        "sympy",
        "rich",
        "bounds.logs",
        "bounds.certificate",
    }
    code = "import sys; from bounds.cli.main import main; main({}); print(*sys.modules, file=sys.stderr)"
    for name in ["", *NAMES]:
        words = [*filter(None, [name]), "--help"]
        done = subprocess.run([sys.executable, "-c", code.format(words)], capture_output=True, text=True, check=True)
        assert not heavy & set(done.stderr.split()), name
        assert name in ("bstar", "largest") or "numpy" not in done.stderr.split()


def test_copied_log_probs_meet_no_requirement(capsys, tmp_path):
    """A log in which both are one number shows nothing, unless somebody says that the policies are the same."""
    path = tmp_path / "log.jsonl"
    row = {"rollout_logprobs": [-1.0, -0.5], "train_logprobs": [-1.0, -0.5], "reward": 1.0}
    path.write_text("".join(json.dumps({**row, "prompt_id": str(i)}) + "\n" for i in range(30)))
    for requirement in ("b_star<=0.5", "kl_seq<=1", "improvement>=-1"):
        code, out, _ = run(capsys, "certify", path, "--horizon", 4, "--require", requirement)
        assert code == 3
        assert "is undecided: both policies' log-probs are bitwise identical" in out
        assert "are the same for certain, --assume delta=0" in out
        assert out.startswith("○ NOTHING MEASURED  both policies' log-probs are the same numbers")
        assert "<= 0 (trajectory_kl)" not in out
    said = ["--assume", "delta=0"]
    assert run(capsys, "certify", path, "--horizon", 4, *said, "--require", "b_star<=0.5")[0] == 0
