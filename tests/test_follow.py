"""A run that grows is followed: one line a step, a page that is whole at all times, and a clean end."""

from __future__ import annotations

import _thread
import json
import threading
import time

import pytest

import bounds
from bounds.certificate.summary import Summary
from bounds.cli.main import main
from bounds.logs.log import LogFile


def rows(step, prompts=range(6)):
    for i in prompts:
        for k in range(2):
            row = {"prompt_id": f"{step}-{i}", "step": step, "reward": float((i + k) % 2)}
            row |= {"rollout_logprobs": [-1.0, -0.5 - k], "train_logprobs": [-1.1, -0.4 - k - 0.01 * i]}
            yield json.dumps(row) + "\n"


def followed(folder, arguments, seen, *writes):
    """Follow a folder in which a thread writes, each time when what was written before is ``seen``; then Ctrl-C."""

    def writer():
        for write in writes:
            before, late = seen(), time.monotonic() + 60.0
            write()
            while seen() == before and time.monotonic() < late:
                time.sleep(0.05)
        time.sleep(1.0)  # the look that wrote what is seen comes to its end
        _thread.interrupt_main()

    thread = threading.Thread(target=writer)
    thread.start()
    code = main([arguments[0], "--follow", str(folder), "--poll", "0.05", "--horizon", "4", *arguments[1:]])
    thread.join()
    return code


def test_certify_follows_a_folder_and_rewrites_its_page(tmp_path, capsys):
    run, page = tmp_path / "run", tmp_path / "page.html"
    run.mkdir()
    (run / "checkpoint.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ")
    first, second, reloading = list(rows(1)), list(rows(2)), []

    def third():
        reloading.append('http-equiv="refresh"' in page.read_text())
        (run / "2.jsonl").write_text("".join(second))

    code = followed(
        run,
        ["certify", "--html", str(page), "--train-policy", "before-update"],
        lambda: page.stat().st_mtime_ns if page.exists() else None,
        lambda: (run / "1.jsonl").write_text("".join(first[:8]) + first[8][:20]),  # the last line is not yet written
        lambda: (run / "1.jsonl").write_text("".join(first)),
        third,
    )
    out, err = capsys.readouterr()
    assert code == 0
    assert reloading == [True]
    assert 'http-equiv="refresh"' not in page.read_text()  # nobody follows any more
    lines = out.splitlines()
    assert [line[:7] for line in lines] == ["step 1:", "step 1:", "step 2:"]
    assert lines[-1].endswith("12 prompts")
    assert "stopped after 3 looks" in err
    assert "ends within a record" not in out + err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["page.html", "run"]


def test_steps_follow_prints_each_step_once(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr("bounds.cli.questions.print", lambda line, flush: said.append(line), raising=False)
    log = tmp_path / "log.jsonl"
    both = "".join(rows(1)), "".join([*rows(1), *rows(2)])
    code = followed(tmp_path, ["steps"], lambda: len(said), *(lambda text=text: log.write_text(text) for text in both))
    assert code == 0
    assert [line.split(";")[0] for line in said] == ["step 1", "step 2"]


def test_of_several_files_only_the_one_that_grew_is_read_again(tmp_path, monkeypatch):
    read, texts = [], ["".join(rows(k)) for k in (1, 2)]
    monkeypatch.setattr(LogFile, "batches", lambda f, wanted: read.append(f.path.name) or f.format.read(f.path, wanted))
    (tmp_path / "1.jsonl").write_text(texts[0])
    for end in (len(texts[1]) // 2, len(texts[1])):
        (tmp_path / "2.jsonl").write_text(texts[1][:end])
        log = bounds.open_log(tmp_path, horizon=4, drop_incomplete=True)
        again = Summary.of(log, resume=tmp_path / "read.parquet")
    assert read == ["1.jsonl", "2.jsonl", "2.jsonl"]
    assert bounds.certify(again).to_json() == bounds.certify(log).to_json()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["log.jsonl"], "no PATH goes with it"), (["--poll", "0"], "poll must be a number in")],
)
def test_what_cannot_be_followed_is_refused(tmp_path, capsys, arguments, words):
    assert main(["certify", "--follow", str(tmp_path), *arguments]) == 2
    assert words in capsys.readouterr().err
