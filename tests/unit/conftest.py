"""The command line, run in this process."""

import signal
import sys
from functools import partial

import pytest

from netbench.cli import main as cli


@pytest.fixture
def command(monkeypatch, capsys):
    """Run a command: exit code, stdout, stderr."""

    def run(*arguments) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["netbench", *map(str, arguments)])
        code = 0
        stopping = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
        handlers = {signum: signal.getsignal(signum) for signum in stopping}
        try:
            cli.main()
        except SystemExit as done:
            code = int(done.code or 0)
        finally:
            for signum, handler in handlers.items():
                signal.signal(signum, handler)
        reported = capsys.readouterr()
        return code, reported.out, reported.err

    return run


@pytest.fixture
def compare(command, monkeypatch):
    """Run `netbench compare` likewise, on 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    return partial(command, "compare")
