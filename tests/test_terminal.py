"""Tables on a terminal: colours, widths, progress; what a pipe gets instead."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios

import pytest

import bounds
from bounds._text import TerminalTable, plain
from bounds.cli.main import main
from bounds.cli.output import counting_progress

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
WORDS = re.compile(r"[A-Za-z_]{4,}")


def on_a_terminal(*arguments, columns=80, of=("stdout",), **environment):
    """What a command writes to a terminal of that many columns, and to its other stream."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    keep = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")}
    streams = {name: theirs if name in of else subprocess.PIPE for name in ("stdout", "stderr")}
    process = subprocess.Popen(
        [sys.executable, "-m", "bounds", *arguments], **streams, env=keep | {"TERM": "xterm-256color"} | environment
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    out, err = process.communicate()
    assert process.returncode == 0, err
    return seen.decode().replace("\r\n", "\n"), (out or err or b"").decode()


def test_colours_on_a_terminal_only_and_not_where_they_are_not_wanted():
    table, _ = on_a_terminal("bstar")
    assert "\x1b[1;32m" in table  # the winner
    assert set(COLOUR.findall(on_a_terminal("bstar", NO_COLOR="1")[0])) <= {
        "\x1b[0m",
        "\x1b[1m",
        "\x1b[2m",
    }  # bold, dim
    piped = subprocess.run([sys.executable, "-m", "bounds", "bstar"], capture_output=True, text=True, check=True)
    assert "\x1b" not in piped.stdout + piped.stderr
    forced = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm"}
    piped = subprocess.run(
        [sys.executable, "-m", "bounds", "bstar"], capture_output=True, text=True, check=True, env=forced
    )
    assert "\x1b[1;32m" in piped.stdout


@pytest.mark.parametrize("command", ["bstar", "certify", "masks", "explain", "formats"])
def test_narrow_terminals_break_between_words(command, capsys):
    assert main([command]) == 0
    known = set(WORDS.findall(capsys.readouterr().out))
    seen, _ = on_a_terminal(command, columns=80)
    lines = COLOUR.sub("", seen).splitlines()
    assert max(map(len, lines)) <= 80
    seen = "\n".join(lines)
    broken = set(WORDS.findall(seen)) - known - {"wider", "terminal", "shows"}
    for word in broken:  # only in formats, whose names of options have up to 51 letters
        assert command == "formats"
        assert any(re.search(rf"(^|[./_]){word.strip('_')}_?([./_]|$)", whole) for whole in known), word


@pytest.mark.parametrize("command", ["bstar", "certify", "masks", "explain", "metrics", "formats"])
def test_a_pipe_gets_every_column(command, capsys):
    assert main([command]) == 0
    assert "a wider terminal shows" not in capsys.readouterr().out


def test_what_there_is_no_room_for_is_said():
    table = bounds.unified(T=4096, delta=1e-4)
    assert "filled in" in plain(table, width=110).split("\n")[2]
    narrow = plain(table, width=80)
    assert "(a wider terminal shows: filled in)" in narrow
    assert "a wider terminal" not in plain(table, width=110)
    assert all(len(line) <= 80 for line in narrow.split("\n"))


def test_what_belongs_together_stays_together():
    rows = [(["a<=1,b<=2,c<=3", "0.5 [0.25, 0.75]", "-0.1 to 0.2", "some words of text"], False)]
    lines = plain(TerminalTable(["mask", "kept", "interval", "what"], rows), width=56).split("\n")
    text = "\n".join(lines)
    assert all(len(line) <= 56 for line in lines)
    for piece in ("[0.25, 0.75]", "-0.1 to 0.2"):
        assert piece in text
    for word in ("a<=1", "b<=2", "c<=3", "some", "words", "text"):
        assert re.search(rf"(?<!\S){re.escape(word)}(?![^\s,])", text), word
    assert "\N{NO-BREAK SPACE}" not in text


@pytest.mark.parametrize("command", ["certify", "explain", "masks", "metrics"])
def test_progress_is_on_stderr_of_a_terminal(command):
    shown, out = on_a_terminal(command, "--json", of=("stderr",))
    assert "96 responses, 13,961 tokens" in shown
    assert out.startswith("{")
    assert out.count("\n") == 1


def test_checks_are_counted_while_they_run(monkeypatch, capsys):
    names = []
    bounds.proof.verify(bounds.proof.CHECKS[:3], on_start=names.append)
    assert names == [c.name for c in bounds.proof.CHECKS[:3]]
    with counting_progress("checking", 3) as say:
        say(names[0])
    assert capsys.readouterr().err == ""  # nobody looks
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with counting_progress("checking", 3) as say:
        for name in names:
            say(name)
    assert f"checking 3 of 3: {names[2]}" in capsys.readouterr().err
