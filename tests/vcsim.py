"""govmomi's simulator of the vSphere API, of an ESXi host or of a vCenter: no guest of it ever runs."""

import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from netbench.images.library import cache_directory
from netbench.vmm.esxi.machine import EsxiHost, on_host
from netbench.vmm.esxi.options import EsxiOptions

R = TypeVar("R")

VERSION = "v0.46.3"
_MODULE = f"github.com/vmware/govmomi/vcsim@{VERSION}"  # Go checks it against its checksum database
_GO = (1, 21)  # its go.mod requires 1.22, which 1.21 downloads by itself
_GO_PLACES = "/usr/local/go/bin:/usr/lib/go/bin"
_BUILD_S = 900
_START_S = 30
DISK = "[LocalDS_0] image.vmdk"
WAY_IN = {"key": "/etc/hostname", "host_key": "ssh-ed25519 AAAA", "address": "192.0.2.1"}
USER, PASSWORD = "netbench", "s3cret-of-vcsim"


def program() -> Path:
    """The simulator: that of the cache, else one on the PATH, else built by Go; the test is skipped without any."""
    kept = cache_directory() / "vcsim" / VERSION / "vcsim"
    if kept.exists():
        return kept
    if found := shutil.which("vcsim"):
        return Path(found)
    go = shutil.which("go") or shutil.which("go", path=_GO_PLACES)
    how = f"put a vcsim on the PATH (release {VERSION} of github.com/vmware/govmomi), or Go {_GO[0]}.{_GO[1]} or newer"
    if go is None:
        pytest.skip(f"needs vcsim, the simulator of the vSphere API: {how}")
    version = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout.strip()
    number = tuple(int(part) for part in version.removeprefix("go").split(".")[:2] if part.isdecimal())
    if number < _GO:
        pytest.skip(f"needs vcsim, and {version} is too old to build it: {how}")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as directory:
        own = {"GOPATH": directory, "GOBIN": directory, "GOFLAGS": "-modcacherw", "GOCACHE": f"{directory}/cache"}
        command = ["env", *(f"{name}={value}" for name, value in own.items()), go, "install", _MODULE]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_S, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip(f"needs vcsim, and `go install {_MODULE}` took more than {_BUILD_S} s")
        if done.returncode:
            pytest.skip(f"needs vcsim, and `go install {_MODULE}` failed: {done.stderr[-300:]}")
        Path(directory, "vcsim").rename(kept)
    return kept


@dataclass(frozen=True)
class Simulator:
    """A running simulator: its address, and the files with its certificate and password."""

    server: str
    ca_file: Path
    password_file: Path
    is_vcenter: bool

    @property
    def topology(self) -> dict[str, Any]:
        """The options of a topology for it and a guest there, without the channel and the password."""
        host = {"host": "DC0_H0"} if self.is_vcenter else {}
        return {"server": self.server, "user": USER, "ca_file": str(self.ca_file), "disk": DISK, **host}

    def options(self, **more: Any) -> EsxiOptions:
        """The same as options of the driver, without a password in the environment."""
        file = {"password_file": str(self.password_file)} if "password_env" not in more else {}
        return EsxiOptions.model_validate({**self.topology, "channel": WAY_IN, **file, **more})

    def ask(self, question: Callable[[EsxiHost], R]) -> R:
        """The host's answer to a query."""
        return on_host(self.options(), question)

    def inventory(self) -> list[str]:
        """All switches, port groups, networks, VMs, and files on datastores."""
        return self.ask(lambda host: sorted(_inventory(host.system)))


def _inventory(system: Any) -> Iterator[str]:
    info = system.configManager.networkSystem.networkInfo
    yield from (f"switch {switch.name}" for switch in info.vswitch)
    yield from (f"port group {group.spec.name} of {group.spec.vswitchName}" for group in info.portgroup)
    yield from (f"network {network.name}" for network in system.network)
    yield from (f"VM {vm.name}: {vm.runtime.powerState}" for vm in system.vm)
    for store in system.datastore:
        place = Path(store.info.url)
        yield from (f"file {path.relative_to(place)}" for path in place.rglob("*"))


def _make_disk(host: EsxiHost) -> None:
    disks = host.session.content.virtualDiskManager
    spec = host.session.vim.VirtualDiskManager.FileBackedVirtualDiskSpec(
        diskType="thin", adapterType="lsiLogic", capacityKb=1024
    )
    host.session.wait(disks.CreateVirtualDisk_Task(DISK, host.datacenter, spec), _START_S)


@contextmanager
def running(*, vcenter: bool) -> Iterator[Simulator]:
    """A simulator on a separate port, with a password and a disk image."""
    with tempfile.TemporaryDirectory(prefix="nbt-vcsim-") as directory:
        mode = ["-standalone-host=1", "-cluster=0", "-vm=1"] if vcenter else ["-esx", "-vm=1"]
        command = [str(program()), "-l", "127.0.0.1:0", "-username", USER, "-password", PASSWORD, *mode]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen(command, **pipes, env={"TMPDIR": directory}) as process:
            try:
                assert process.stdout is not None
                url = process.stdout.readline()
                assert url.startswith("export GOVC_URL="), url + process.stdout.read()
                server = url.rpartition("@")[2].partition("/")[0]
                certificate = Path(directory, "ca.pem")
                host, _, port = server.partition(":")
                certificate.write_text(ssl.get_server_certificate((host, int(port))))
                password = Path(directory, "password")
                password.touch(0o600)
                password.write_text(f"{PASSWORD}\n")
                simulator = Simulator(server, certificate, password, vcenter)
                simulator.ask(_make_disk)
                yield simulator
            finally:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):  # then it is killed
                    process.wait(_START_S)
                process.kill()


if __name__ == "__main__":
    print(program())
