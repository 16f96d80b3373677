"""The watchdog on a host over SSH: netbench's agent, and a journal of changes, undone when the controller is gone.

    python3 … -m netbench.linux.watchdog.program RUN DIRECTORY SILENCE RESOURCE…

It undoes the changes of killed runs, takes the locks of the resources, and prints a description of this host as a line
of JSON. Then it serves its stdin and stdout as an agent does, with two more kinds of messages:

    J  a change as JSON: record it before it is made            J  its number
    J  a number: that change was undone                          J  empty
    Q  quit

It ends when its stdin ends, or when the controller was silent for SILENCE seconds (the controller sends something each
second). Then it ends the processes it started, undoes the recorded changes that are left, and removes DIRECTORY, which
contains its code. So no sender and no change outlives the controller or the network connection.
"""

import ctypes
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path

from netbench.errors import NetbenchError
from netbench.hosts.guest_agent.program import Agent
from netbench.hosts.local import MARK, LocalHost
from netbench.hosts.trusted_code import search_path
from netbench.linux.locks import STATE_DIRECTORY, create_locked, lock_file, lock_testbed
from netbench.linux.machine import Machine
from netbench.linux.recovery_journal import Journal, clean, from_json, undo_run
from netbench.model.foreign_text import read_text

CODE_DIRECTORY = STATE_DIRECTORY / "code"
_LOCK = "lock"
_CLOCK_PROGRAMS = ("chronyd", "ntpd", "ntpsec", "systemd-timesyn", "ptp4l", "phc2sys", "timemaster")  # 15 characters
_UNSYNCHRONISED = 0x40  # STA_UNSYNC of linux/timex.h
_TIMEX = struct.Struct("=I4x4qi")  # struct timex on 64-bit machines: modes, offset, freq, maxerror, esterror, status
_UNPACKED_S = 300  # a younger directory without a lock may belong to a run that is about to lock it


class _Watchdog(Agent):
    """An agent that also has a journal for its controller."""

    kinds = Agent.kinds + b"JQ"

    def __init__(self, journal: Journal, silence_s: float) -> None:
        super().__init__(0, comes_back=False, outlet=1, silence_s=silence_s)
        self._journal = journal

    def command(self, argv: list[bytes]) -> list[bytes]:
        # The processes that it started end with it, even after a crash.
        return [b"setpriv", b"--pdeathsig", b"KILL", *argv]

    def _execute(self, kind: bytes, number: int, body: bytes) -> None:
        if kind == b"Q":
            self._open = False
        elif kind == b"J":
            try:
                self._send(b"J", number, self._record(json.loads(body)))
            except (NetbenchError, KeyError, TypeError, ValueError) as error:
                self._send(b"F", number, f"a change cannot be recorded: {error}".encode())
        else:
            super()._execute(kind, number, body)

    def _record(self, entry: object) -> bytes:
        if isinstance(entry, dict):
            return b"%d" % self._journal.record(from_json(entry))
        if isinstance(entry, int):
            self._journal.undone(entry)
        return b""


def main() -> None:
    """Serve until the controller goes."""
    _, run, directory, silence_s, *resources = sys.argv
    for number in (signal.SIGHUP, signal.SIGPIPE, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)  # if this fails, the next run removes it
        try:
            if os.geteuid() != 0:
                sys.exit("netbench needs root there: let that user be root, or use sudo without a password")
            os.environ |= {"LC_ALL": "C", "PATH": search_path()}
            _require_setpriv()
            stack.enter_context(create_locked(Path(directory, _LOCK)))
            _remove_abandoned()
            clean()
            lock_testbed(stack, resources)
            journal = Journal.create(run)
        except NetbenchError as error:
            sys.exit(str(error))
        os.environ[MARK] = journal.run_id
        try:
            print(json.dumps(_description(journal.run_id)), flush=True)
            _Watchdog(journal, float(silence_s)).serve()
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            undo_run(journal, Machine(None, LocalHost("local", journal.run_id), record=journal))


def _require_setpriv() -> None:
    """Exit if setpriv is missing: it starts every command, so a check for other tools would need it too."""
    try:
        done = subprocess.run(["setpriv", "--pdeathsig", "KILL", "true"], capture_output=True, check=False)
        works = done.returncode == 0
    except OSError:
        works = False
    if not works:
        sys.exit(
            "it has no setpriv with --pdeathsig, which ends processes with netbench's own: install util-linux there; "
            "`netbench hosts prepare TOPOLOGY` does it"
        )


def _description(run_id: str) -> dict[str, object]:
    return {
        "run": run_id,
        "cpus": sorted(os.sched_getaffinity(0)),
        "python": ".".join(map(str, sys.version_info[:3])),
        "clock": clock_state(),
        "numpy": find_spec("numpy") is not None,
    }


def clock_state(proc: Path = Path("/proc")) -> str:
    """Return the programs that synchronise this machine's clock, and its error in µs (maxerror of adjtimex(2))."""
    running = set()
    for comm in proc.glob("[0-9]*/comm"):
        with suppress(OSError):  # it has ended
            running.add(read_text(comm).strip())
    programs = ", ".join(sorted(running.intersection(_CLOCK_PROGRAMS)))
    by = f"by {programs}" if programs else "by no program known here"
    timex = ctypes.create_string_buffer(256)
    if ctypes.CDLL(None).adjtimex(timex) < 0:
        return f"kept {by}; error unknown to the kernel"
    _, _, _, most_us, _, status = _TIMEX.unpack_from(timex)
    if status & _UNSYNCHRONISED:
        return f"kept {by}; not synchronised"
    return f"kept {by}; synchronised, wrong by {most_us:,} µs at most"


def _remove_abandoned() -> None:
    """Remove the code of runs that were killed."""
    for directory in CODE_DIRECTORY.iterdir():
        with suppress(OSError):  # another run is removing it at this moment
            lock = directory / _LOCK
            if not lock.exists() and time.time() - directory.stat().st_mtime < _UNPACKED_S:
                continue
            file = lock_file(lock)
            if file is not None:
                shutil.rmtree(directory)
                file.close()


if __name__ == "__main__":
    main()
