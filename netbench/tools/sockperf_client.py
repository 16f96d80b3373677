"""Runs a client of sockperf and prints its figures: `python -m netbench.tools.sockperf_client ARGUMENT…`.

The arguments are those of sockperf. Its full log, one line for each message, is read where it is written. The output is
one JSON object (sealed_output.py). It runs on the client's host: it needs the standard library alone.
"""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from netbench.tools.sealed_output import sealed
from netbench.tools.tcp_client import times

_NUMBERS = (
    r"RunTime=(\d{1,9}\.\d{3}) sec; (?:Warm up time=\d+ msec; )?SentMessages=(\d{1,15}); ReceivedMessages=(\d{1,15})$"
)
_TOTAL = re.compile(r"^sockperf: \[Total Run\] " + _NUMBERS, re.MULTILINE)
_VALID = re.compile(r"^sockperf: \[Valid Duration\] " + _NUMBERS, re.MULTILINE)
_COUNT = r"messages = (\d{1,15})"
_OTHERS = re.compile(
    rf"# dropped {_COUNT}; # duplicated {_COUNT}; # out-of-order {_COUNT}(?:\x1b\[0m)?$",
    re.MULTILINE,
)
_MEAN = re.compile(r"avg-rtt=(\d{1,12}\.\d{3}) \(", re.MULTILINE)
_EXTREME = r"^sockperf: ---> <{}> observation = +(\d{{1,12}}\.\d{{3}})$"
_LARGEST, _SMALLEST = (re.compile(_EXTREME.format(name), re.MULTILINE) for name in ("MAX", "MIN"))
_SUMMARY = (_TOTAL, _VALID, _OTHERS, _MEAN, _LARGEST, _SMALLEST)
_VERSION = re.compile(r"== version #([!-~]{1,40}) ==")
_HEADING = "packet, txTime(sec), rxTime(sec), rtt(usec)\n"
_ROW = re.compile(r"(\d+), (\d{1,9})\.(\d{9}), (\d{1,9})\.(\d{9}), (\d{1,12})\.(\d{3})")
_RULE = "------------------------------"
_NS, _ROUNDING_NS = 1_000_000_000, 2
_EMPTY = "No valid observations found"
_SILENT = "No messages were received"
_LAST_WORDS = 150


def figures_in(output: str, log: str) -> dict[str, object]:
    """Return the figures in the output of sockperf and its full log; ValueError if they are incomplete or differ.

    The summary is in both. Each row has the times of a message and of its reply, and their difference.
    """
    if _SILENT in output:
        raise ValueError("sockperf received no reply from the server")
    if _EMPTY in output:
        raise ValueError("sockperf measured nothing; over UDP its ping-pong waits forever for a lost datagram")
    found = [(pattern.findall(output), pattern.findall(log)) for pattern in _SUMMARY]
    if any(len(here) != 1 or here != there for here, there in found):
        raise ValueError("sockperf's output and its log contradict each other, or are incomplete")
    (total,), (valid,), (others,), (mean,), (largest,), (smallest,) = (here for here, _ in found)
    rows = _rows(log)
    rtts = [received - sent for sent, received, _ in rows]
    dropped, duplicated, disordered = map(int, others)
    if (
        len(rtts) != int(valid[2])
        or not rtts
        or max(abs(rtt - row[2]) for rtt, row in zip(rtts, rows, strict=True)) > _ROUNDING_NS
        or any(later[0] < earlier[0] for earlier, later in pairwise(rows))
        or min(rtts) < 0
        or abs(_ns(mean) - sum(rtts) / len(rtts)) > _ROUNDING_NS
        or abs(_ns(largest) - max(rtts)) > _ROUNDING_NS
        or abs(_ns(smallest) - min(rtts)) > _ROUNDING_NS
    ):
        raise ValueError("sockperf's log contradicts its summary")
    return {
        "version": _version(output),
        "valid_s": float(valid[0]),
        "total_s": float(total[0]),
        "total_sent": int(total[1]),
        "total_received": int(total[2]),
        "sent": int(valid[1]),
        "received": int(valid[2]),
        "dropped": dropped,
        "duplicated": duplicated,
        "out_of_order": disordered,
        "rtt": times(rtts),
    }


def _rows(log: str) -> list[tuple[int, int, int]]:
    """Return the times of messages, of replies and between them, in ns."""
    _, heading, rest = log.partition(_HEADING)
    rows, rule, after = rest.partition(_RULE)
    if not heading or not rule or after.strip():
        raise ValueError("sockperf's log is incomplete")
    times_ns = []
    for number, line in enumerate(rows.splitlines()):
        row = _ROW.fullmatch(line)
        if not row or int(row[1]) != number:
            raise ValueError(f"sockperf's log has {line[:80]!r} for message {number}")
        sent_s, sent_ns, received_s, received_ns, rtt_us, rtt_ns = map(int, row.groups()[1:])
        times_ns.append((sent_s * _NS + sent_ns, received_s * _NS + received_ns, rtt_us * 1000 + rtt_ns))
    return times_ns


def _ns(microseconds: str) -> int:
    return int(microseconds.replace(".", ""))


def _version(output: str) -> str:
    match = _VERSION.search(output)
    if not match:
        raise ValueError("sockperf's output lacks its version")
    return match[1]


def main() -> None:
    """Run sockperf and print its figures."""
    # A file in memory, which leaves nothing behind.
    descriptor = os.memfd_create("sockperf")
    path = f"/proc/self/fd/{descriptor}"
    command = ["setpriv", "--pdeathsig", "KILL", "sockperf", *sys.argv[1:], "--full-rtt", "--full-log", path]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", pass_fds=(descriptor,))
    words = (done.stdout + done.stderr).strip()
    try:
        if done.returncode:
            raise ValueError(f"sockperf ended with exit code {done.returncode}")
        sys.stdout.write(sealed(figures_in(done.stdout, Path(path).read_text(errors="replace"))))
    except ValueError as error:
        sys.exit(f"{error}. It printed at last: {' '.join(words.split())[-_LAST_WORDS:]}")


if __name__ == "__main__":
    main()
