"""Watching a campaign from outside while it runs."""

import contextlib
import ctypes
import json
import subprocess
from pathlib import Path

from netbench.bpf.libbpf import BpfError, libbpf
from netbench.hosts.clock import wait_until


def wait_for(condition, timeout_s=60.0):
    assert wait_until(condition, timeout_s, every_s=0.005), "it did not happen in time"


def events(results: Path) -> list[dict]:
    try:
        return [json.loads(line) for line in (results / "events.jsonl").read_text().splitlines()]
    except (OSError, ValueError):
        return []


def stored(results: Path) -> int:
    """The number of stored trials, also of a long campaign in no time."""
    log = results / "events.jsonl"
    return log.read_text().count('"kind": "trial-stored"') if log.exists() else 0


def pids_in(netns: str, word: str) -> list[int]:
    """Processes of a namespace with this word in their command line."""
    listed = subprocess.run(["ip", "netns", "pids", netns], capture_output=True, text=True, check=False).stdout.split()
    found = []
    for pid in listed:
        with contextlib.suppress(OSError):  # it may have ended in the meantime
            if word in Path(f"/proc/{pid}/cmdline").read_text():
                found.append(int(pid))
    return found


def frames_sent() -> int:
    """The frames sent by the first source's NIC of the topology `netns` since it was made."""
    command = "ip netns exec nb-netns-source cat /sys/class/net/nb-tx1/statistics/tx_packets"
    output = subprocess.run(command.split(), capture_output=True, text=True, check=False).stdout
    return int(output or 0)


def programs() -> set[int]:
    """The ids of all BPF programs in the kernel."""
    found: set[int] = set()
    last = ctypes.c_uint32(0)
    while True:
        try:
            libbpf()("bpf_prog_get_next_id", last, ctypes.byref(last))
        except BpfError:
            return found
        found.add(last.value)
