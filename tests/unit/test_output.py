"""Standard output that cannot be written to: commands that only print fail, running work goes on."""

import io
import os
import shlex
import subprocess
import sys
from functools import cache

import pytest

from netbench.cli.console import PrintingConsole
from netbench.cli.output import UNLIMITED, LastingOutput, printable, width_of

NETBENCH = f"{shlex.quote(sys.executable)} -m netbench"
LIST = f"{NETBENCH} list"


@cache
def said_in_peace(command: str) -> tuple[int, str]:
    """The same where all of the output is taken."""
    return said_of(f"{NETBENCH} {command} >/dev/null")


def said_of(command: str) -> tuple[int, str]:
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize(("where", "why"), [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")])
def test_what_could_not_be_printed_is_an_error(where, why):
    assert said_of(f"{LIST} {where}") == (4, f"netbench: standard output was not written: {why}\n")
    assert said_of(f"{LIST} {where} 2>&-") == (4, "")


def test_without_standard_input_nothing_is_asked():
    code, err = said_of(f"{NETBENCH} init <&-")
    assert (code, err.count("\n")) == (2, 1)
    assert "name the ports that send and receive" in err


@pytest.mark.parametrize(
    ("how", "command"),
    [
        ("", "doctor"),
        ("PYTHONUNBUFFERED=1", "doctor"),
        ("PYTHONUNBUFFERED=1", "list"),
        ("", "--help"),
        ("PYTHONUNBUFFERED=1", "run --help"),
    ],
)
def test_anyone_who_prints_reports_that_it_could_not_and_nothing_more(how, command):
    """So do Rich and the library that parses the command line."""
    full = "netbench: standard output was not written: No space left on device\n"
    assert said_of(f"{how} {NETBENCH} {command} >/dev/full") == (4, full)
    assert said_of(f"set -o pipefail; {how} {NETBENCH} {command} | true") == said_in_peace(command)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_has_its_width_and_a_file_has_none(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("netbench.cli.output.get_terminal_size", lambda: os.terminal_size((132, 40)))
    assert (width_of(Terminal()), width_of(io.StringIO())) == (132, UNLIMITED)
    monkeypatch.setenv("COLUMNS", "80")
    assert width_of(io.StringIO()) == 132, "what shutil makes of it"
    assert PrintingConsole(LastingOutput(io.StringIO())).width == 132


@pytest.mark.parametrize("gone", ["2>/dev/full", "2>&-"])
def test_what_is_wrong_shows_in_the_exit_code_where_it_cannot_be_reported(gone):
    assert said_of(f"{NETBENCH} nonsense {gone}") == (2, "")


def test_a_reader_that_has_seen_enough_is_none():
    """That holds for output larger than a pipe, too."""
    plan = f"{NETBENCH} run netns-3 schlosser2011-dedicated --dry-run"
    for command in (LIST, plan):
        assert said_of(f"set -o pipefail; {command} | head -n 1") == (0, "")


@pytest.mark.parametrize("gone", ["pipe", "full"])
def test_what_lasts_goes_on_in_silence(gone):
    if gone == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
        stream = os.fdopen(writer, "w")
    else:
        stream = open("/dev/full", "w")  # noqa: PTH123, SIM115 - closed below
    output = LastingOutput(stream)
    print("x" * 100_000, file=output)
    output.flush()
    print("and more", file=output, flush=True)
    stream.close()


def test_what_lasts_writes_while_it_can():
    stream = io.StringIO()
    print("one", file=LastingOutput(stream))
    assert stream.getvalue() == "one\n"


def test_what_somebody_wrote_is_quoted_safely():
    assert printable("a\x1b[2Jb\x07\nplain · öß") == "a\\x1b[2Jb\\x07\nplain · öß"
    assert printable("x" * 10_000 + ": no such file") == "x" * 400 + "… (10,001 characters) no such file"
