"""The state of this machine, as far as netbench could change it."""

import subprocess
import time
from pathlib import Path

from netbench.hosts.local import MARK
from netbench.linux.locks import STATE_DIRECTORY
from netbench.model.paths import PREFIX

_SYSCTL_TREES = ("net/ipv4", "net/ipv6", "net/core", "net/bridge")
# Counted or chosen at random by the kernel itself, not settings.
_VOLATILE = ("/neigh/", "/route/", "uuid", "random")


def machine_state() -> dict[str, object]:
    """Namespaces, links, sysctls, control groups, journals and marked processes; waits for ending processes."""
    deadline = time.monotonic() + 2.0
    while _processes() and time.monotonic() < deadline:
        time.sleep(0.02)
    return {
        "namespaces": sorted(path.name for path in Path("/run/netns").glob("*")),
        "links": _output("ip", "-br", "link"),
        "addresses": _output("ip", "-br", "address"),
        "rules": _output("nft", "list", "ruleset"),
        "sysctls": _sysctls(),
        "groups": sorted(map(str, Path("/sys/fs/cgroup").rglob(f"{PREFIX}*"))),
        "journals": sorted(path.name for path in (STATE_DIRECTORY / "journals").glob("*")),
        "guests": sorted(path.name for path in (STATE_DIRECTORY / "vm").glob("*")),
        "processes": _processes(),
    }


def _output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def _sysctls() -> dict[str, str]:
    values = {}
    for tree in _SYSCTL_TREES:
        for path in (Path("/proc/sys") / tree).rglob("*"):
            if path.is_file() and not any(word in str(path) for word in _VOLATILE):
                try:
                    values[str(path)] = path.read_text()
                except OSError:
                    continue  # write-only
    return values


def _processes() -> list[str]:
    """Processes that bear the mark of a run."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if any(entry.startswith(f"{MARK}=".encode()) for entry in environment.read_bytes().split(b"\0")):
                found.append(environment.parent.name)
        except OSError:
            continue
    return found
