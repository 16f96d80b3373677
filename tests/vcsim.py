"""govmomi's simulator of the vSphere API, of an ESXi host or of a vCenter: no guest of it ever runs."""

import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from netbench.images.library import cache_directory
from netbench.vmm.esxi_api import session
from netbench.vmm.esxi_inventory import hosts_of
from netbench.vmm.esxi_options import EsxiOptions

VERSION = "v0.46.3"
_MODULE = f"github.com/vmware/govmomi/vcsim@{VERSION}"  # which Go checks against its checksum database
_GO = (1, 22)  # as its go.mod says; older ones than 1.21 cannot fetch a newer Go by themselves
_GO_PLACES = "/usr/local/go/bin:/usr/lib/go/bin"
_BUILD_S = 900
_START_S = 30
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
    told = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout.strip()
    number = tuple(int(part) for part in told.removeprefix("go").split(".")[:2] if part.isdecimal())
    if number < _GO:
        pytest.skip(f"needs vcsim, and {told} is too old to build it: {how}")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as directory:
        own = {"GOPATH": directory, "GOBIN": directory, "GOFLAGS": "-modcacherw", "GOCACHE": f"{directory}/cache"}
        command = ["env", *(f"{name}={value}" for name, value in own.items()), go, "install", _MODULE]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_S, check=False)
        if done.returncode:
            pytest.skip(f"needs vcsim, and `go install {_MODULE}` failed: {done.stderr[-300:]}")
        Path(directory, "vcsim").rename(kept)
    return kept


@dataclass(frozen=True)
class Simulator:
    """One that runs: where it listens, and its certificate as a file."""

    server: str
    ca_file: Path
    is_vcenter: bool

    @property
    def options(self) -> dict[str, Any]:
        """What a topology says of it, beside the guest."""
        host = {"host": "DC0_H0"} if self.is_vcenter else {}
        return {"server": self.server, "user": USER, "ca_file": str(self.ca_file), **host}

    def have_free_nics(self) -> None:
        """A host has two NICs, one of them in use for nothing in particular."""
        with session(any_options(self)) as one:
            for system in hosts_of(one).values():
                system.configManager.networkSystem.RemoveVirtualSwitch("vSwitch0")

    def inventory(self) -> list[str]:
        """All switches, port groups, networks, VMs, and directories on datastores."""
        with session(any_options(self)) as one:
            return sorted(_inventory(list(hosts_of(one).values())))


def any_options(simulator: Simulator, **more: Any) -> EsxiOptions:
    """Options that name some guest there."""
    guest = {"disk": "[LocalDS_0] image.vmdk", "channel": {"key": "/etc/hostname", "host_key": "ssh-ed25519 AAAA"}}
    return EsxiOptions.model_validate({**simulator.options, **guest, **more})


def _inventory(systems: list[Any]) -> Iterator[str]:
    for system in systems:
        info = system.configManager.networkSystem.networkInfo
        yield from (f"switch {one.name} of {system.name}" for one in info.vswitch)
        yield from (f"port group {one.spec.name} of {system.name}" for one in info.portgroup)
        yield from (f"network {one.name} of {system.name}" for one in system.network)
        yield from (f"VM {one.name} of {system.name}: {one.runtime.powerState}" for one in system.vm)
        for store in system.datastore:
            place = Path(store.info.url)
            yield from (f"file {path.relative_to(place)} of {store.name}" for path in place.rglob("*"))


@contextmanager
def running(*, vcenter: bool) -> Iterator[Simulator]:
    """A simulator on a port of its own, with a password; its datastores have a disk image `image.vmdk`."""
    with tempfile.TemporaryDirectory(prefix="nbt-vcsim-") as directory:
        mode = ["-standalone-host=1", "-cluster=0", "-vm=1"] if vcenter else ["-esx", "-vm=1"]
        command = [str(program()), "-l", "127.0.0.1:0", "-username", USER, "-password", PASSWORD, *mode]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"TMPDIR": directory}) as process:
            try:
                assert process.stdout is not None
                url = next(line for line in process.stdout if line.startswith("export GOVC_URL="))
                server = url.rpartition("@")[2].partition("/")[0]
                certificate = Path(directory, "ca.pem")
                host, _, port = server.partition(":")
                certificate.write_text(ssl.get_server_certificate((host, int(port))))
                yield Simulator(server, certificate, vcenter)
            finally:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_START_S)
                process.kill()
