"""Stubs that respond as vzctl(8), vzlist(8) and prlctl(8) specify, to test the commands of netbench.

This file acts as `vzctl`, `vzlist` or `prlctl`, depending on its name; its data is stored beside it. Every call is
recorded in `calls`; `failures` lists the calls that fail (`{"vzctl start": [12, "Permission denied"]}`). For root, a
container is a network namespace with one process, which has its own environment; with a file `dry`, it is only a state.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

TEMPLATES = ("", "debian-12", "without-init")
_DEFAULTS: dict[str, Any] = {"name": "", "template": "", "pid": 0, "saved": []}


class Stub:
    """The data of the programs, in a directory that must be on the PATH."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def install(self, *names: str, dry: bool = False) -> None:
        """Install the programs in the directory."""
        for name in names:
            command = shlex.join([sys.executable, "-SE", __file__])
            (self.directory / name).write_text(f'#!/bin/sh\nexec {command} "$0" "$@"\n')
            (self.directory / name).chmod(0o755)
        if dry:
            (self.directory / "dry").touch()

    def fail(self, command: str, code: int, words: str) -> None:
        """Make a command fail from now on."""
        (self.directory / "failures").write_text(json.dumps({command: [code, words]}))

    @property
    def calls(self) -> list[str]:
        """All calls so far, without queries."""
        path = self.directory / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if " status " not in line and not line.startswith("vzlist")]

    def put(self, ident: str, **keeps: Any) -> None:
        """Store the state of a container."""
        (self.directory / f"{ident}.ct").write_text(json.dumps({**_DEFAULTS, **keeps}))

    def containers(self) -> dict[str, dict[str, Any]]:
        """All containers, by number or name."""
        return {path.stem: json.loads(path.read_text()) for path in self.directory.glob("*.ct")}

    def end(self, ident: str) -> None:
        """Make a container stop by itself."""
        kept = self.containers()[ident]
        if (self.directory / "dry").exists():
            self.put(ident, **{**kept, "pid": 0})
        else:
            os.kill(kept["pid"], signal.SIGKILL)


class Call:
    """One call of one of the programs."""

    def __init__(self, stub: Stub, program: str, words: Sequence[str]) -> None:
        self._stub = stub
        self._dry = (stub.directory / "dry").exists()
        self._program = program
        self._words = list(words)
        self._ident = words[1] if len(words) > 1 else ""

    def answer(self) -> None:
        """Carry out the call, and exit."""
        with (self._stub.directory / "calls").open("a") as calls:
            calls.write(" ".join([self._program, *self._words]) + "\n")
        failures = self._stub.directory / "failures"
        for command, (code, words) in json.loads(failures.read_text()).items() if failures.exists() else ():
            if f"{self._program} {' '.join(self._words)}".startswith(command):
                self._refuse(code, words)
        if self._words == ["--version"]:
            print(f"{self._program} version 0.0-stub")
        elif self._program == "vzlist":
            print(self._kept(self._words[-1])["name"] or "-")
        else:
            does: dict[str, Callable[[], None]] = {
                "create": self._create,
                "set": self._set,
                "start": self._start,
                "status": self._status,
                "exec": self._exec,
                "exec2": self._exec,
                "stop": self._stop,
                "destroy": self._destroy,
                "delete": self._destroy,
            }
            does[self._words[0]]()

    def _refuse(self, code: int, words: str) -> NoReturn:
        print(words, file=sys.stderr)
        raise SystemExit(code)

    def _option(self, name: str) -> str:
        return self._words[self._words.index(name) + 1] if name in self._words else ""

    def _kept(self, ident: str = "") -> dict[str, Any]:
        kept = self._stub.containers().get(ident or self._ident)
        if kept is None:
            self._refuse(14, "Container config file does not exist")
        return kept

    def _put(self, **changed: Any) -> None:
        self._stub.put(self._ident, **{**self._kept(), **changed})

    @property
    def _netns(self) -> str:
        return f"ct-{self._ident}"

    def _ip(self, *words: str) -> None:
        if not self._dry:
            subprocess.run(["ip", *words], check=True)

    @property
    def _runs(self) -> bool:
        """Whether the container runs; it ends, with all its NICs, when its first process does."""
        pid = self._stub.containers().get(self._ident, _DEFAULTS)["pid"]
        if pid and not self._dry and not _alive(pid):
            self._ip("netns", "delete", self._netns)
            self._put(pid=0)
            pid = 0
        return bool(pid)

    def _require_running(self) -> None:
        self._kept()
        if not self._runs:
            self._refuse(31, "Container is not running")

    def _create(self) -> None:
        if self._ident in self._stub.containers():
            self._refuse(44, f"Private area already exists in /vz/private/{self._ident}")
        template = self._option("--ostemplate")
        if template not in TEMPLATES:
            self._refuse(91, f"Cached OS template /vz/template/cache/{template}.tar.gz not found")
        self._stub.put(self._ident, name=self._option("--name"), template=template)

    def _set(self) -> None:
        saves = "--save" in self._words or self._program == "prlctl"
        if saves:
            self._put(saved=[*self._kept()["saved"], *self._words[2:]])
            return
        self._require_running()
        if added := self._option("--netif_add"):
            nic, mac, host_nic, host_mac = added.split(",")
            peer = ("peer", "name", nic, "address", mac, "netns", self._netns)
            self._ip("link", "add", host_nic, "address", host_mac, "type", "veth", *peer)
            self._ip("-n", self._netns, "link", "set", nic, "up")
        if removed := self._option("--netif_del"):
            self._ip("-n", self._netns, "link", "delete", removed)

    def _start(self) -> None:
        if self._kept()["template"] == "without-init":
            self._refuse(47, "Unable to start init, probably incorrect template\nContainer start failed")
        if self._runs:
            self._refuse(32, "Container is already running")
        pid = 1
        if not self._dry:
            self._ip("netns", "add", self._netns)
            self._ip("-n", self._netns, "link", "set", "lo", "up")
            pid = self._popen(["sleep", "infinity"], start_new_session=True, stdin=subprocess.DEVNULL).pid
        self._put(pid=pid)

    def _popen(self, argv: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
        own = {"PATH": "/bin:/sbin:/usr/bin:/usr/sbin"}
        quiet: dict[str, Any] = (
            {} if "stdin" not in options else {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        )
        return subprocess.Popen(["ip", "netns", "exec", self._netns, *argv], env=own, **options, **quiet)

    def _status(self) -> None:
        exists = self._ident in self._stub.containers()
        if self._program == "vzctl":
            where = "exist mounted" if exists else "deleted unmounted"
            print("CTID", self._ident, where, "running" if self._runs else "down")
        elif exists:
            print("CT", self._ident, "exist", "running" if self._runs else "stopped")
        else:
            print("VM", self._ident, "deleted")

    def _exec(self) -> None:
        self._require_running()
        if not self._dry:
            with self._popen(["bash", "-c", " ".join(self._words[2:]) + " "]) as process:
                raise SystemExit(process.wait())

    def _stop(self) -> None:
        self._require_running()
        if not self._dry:
            os.kill(self._kept()["pid"], signal.SIGKILL)
            self._ip("netns", "delete", self._netns)
        self._put(pid=0)

    def _destroy(self) -> None:
        self._kept()
        if self._runs:
            self._refuse(32, "Container is currently running. Stop it before proceeding.")
        (self._stub.directory / f"{self._ident}.ct").unlink()


def _alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


if __name__ == "__main__":
    called = Path(sys.argv[1])
    Call(Stub(called.parent), called.name, sys.argv[2:]).answer()
