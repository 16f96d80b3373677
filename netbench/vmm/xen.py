"""VMM `xen`: domains of Xen; the UUT's machine is domain 0: a VM of netbench's own, or this machine."""

import re
import shlex
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from netbench.errors import MissingError, TestbedError
from netbench.hosts.agent.channel import AgentChannel
from netbench.hosts.agent.host import AgentHost
from netbench.hosts.base import Host, run_checked
from netbench.hosts.host_wrappers import MonitoredHost, outside
from netbench.hosts.trusted_code import search_path
from netbench.images.library import find_image
from netbench.linux.changes import AddRunDirectory, Change
from netbench.linux.requirements import Facility
from netbench.model.duration_estimate import Pace
from netbench.model.paths import StreamPath
from netbench.model.virtualisation import Virtualisation
from netbench.vmm.base import GuestOptions, GuestSpec, RunningGuest, Vmm
from netbench.vmm.started_machine import trouble_in
from netbench.vmm.xen_changes import AddDomain, TapOfDomain, Vif, destroy
from netbench.vmm.xen_config import domain_config, kernel_words
from netbench.vmm.xen_console import Overheard, console_of
from netbench.vmm.xen_domain import REMEDY, Listed, domain_0, listed
from netbench.vmm.xen_options import NIC_KINDS, XenOptions

_IMITATED_PC_S = 90.0  # boot time with emulated devices: each access to one wakes domain 0
_LOOK_S = 2.0  # `xl list` takes as much of domain 0's CPU time as some frames
DOMAIN_0 = Path("/proc/xen/capabilities")
_INFO = re.compile(r"^(xen_version|xen_scheduler)\s*: (.*)$", re.MULTILINE)


def look_for_xl(_: str) -> str:
    """Return the path of `xl`; MissingError without it, or if this machine is not domain 0 of Xen."""
    path = shutil.which("xl", path=search_path())
    if path is None:
        raise MissingError("xl is not on this host")
    if not DOMAIN_0.exists() or "control_d" not in DOMAIN_0.read_text():
        raise MissingError(f"this host is no domain 0 of Xen ({DOMAIN_0} does not say so)")
    return path


class Xen(Vmm):
    """A domain of Xen: PV, PVH or HVM; its NICs are bridged to NICs of domain 0, which works for every domain.

    Its weight and limit become weight and cap of Xen's scheduler. Its CPU time is that of its vCPUs. The back ends of
    its NICs run in domain 0, whose CPU time is that of the machine.
    """

    Options: ClassVar[type[GuestOptions]] = XenOptions
    kinds = (Virtualisation.PARA, Virtualisation.HARDWARE)
    nic_models = NIC_KINDS
    supports = replace(Vmm.supports, attachments=("vif", "tap"), pinning=("the whole guest", "each vCPU"))
    entitles: bool = True
    pace: ClassVar[Pace] = Pace(bring_up_s=25.0, trial_s=3.0, idle_s=0.3, load_s=1.0)  # emulated
    may_need = (Facility("xl", "domains of Xen", REMEDY, look_for_xl, signs=("xl", str(DOMAIN_0))),)

    def __init__(self, options: XenOptions) -> None:
        super().__init__(options)
        self._options = options

    def pace_of(self, paths: Sequence[StreamPath]) -> Pace:
        pace = super().pace_of(paths)
        return replace(pace, bring_up_s=_IMITATED_PC_S) if self._options.mode == "hvm" else pace

    def needs(self) -> frozenset[str]:
        return frozenset({"xl", f"image:{self._options.image}"})

    @property
    def virtualisation(self) -> Virtualisation:
        return Virtualisation.PARA if self._options.mode == "pv" else Virtualisation.HARDWARE

    @property
    def nic_model(self) -> str:
        return self._options.nic

    def attachment(self, spec: GuestSpec) -> Vif:
        kind = Vif if self._options.nic == "vif" else TapOfDomain
        return kind(spec.own_netns, self._options.nic, tuple(nic.interface for nic in spec.nics))

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        """Yield the changes that create the domain, paused: its NICs exist only then."""
        yield AddRunDirectory(str(spec.directory))
        options, file = self._options, str(spec.directory / "domain.cfg")
        disc_words = kernel_words(options) if options.mode == "hvm" else ""
        yield AddDomain(spec.own_netns, file, domain_config(spec, options), options.image, disc_words)

    def command(self, spec: GuestSpec) -> str:
        return shlex.join(["xl", "unpause", spec.own_netns])

    def start(self, spec: GuestSpec, host: Host) -> RunningGuest:
        domain_0_host = outside(host)
        domain = listed(domain_0_host, spec.own_netns)
        if domain is None:
            raise TestbedError(f"{spec.title}: its domain {spec.own_netns} is gone")
        guest = XenGuest(spec, domain_0_host, domain.number, self._options)
        try:
            run_checked(domain_0_host, ["xl", "unpause", spec.own_netns])
        except BaseException:  # Ctrl-C too
            guest.stop()
            raise
        return guest


class XenGuest(RunningGuest):
    """A running domain, and the connection to its agent over its console."""

    quiet_time_s = 0.2

    def __init__(self, spec: GuestSpec, machine: Host, number: int, options: XenOptions) -> None:
        super().__init__(spec)
        self._machine = machine
        self._options = options
        self._looked_s = 0.0
        self._console: Overheard = console_of(machine, number, spec.title, self.death)
        self._agent = AgentHost(spec.name, AgentChannel(spec.title, self._console))

    def await_answer(self, limit_s: float) -> None:
        MonitoredHost(self._agent, self.death).await_answer(limit_s, self._hopeless)
        self._console.booted()

    def host(self, gone: type[TestbedError] = TestbedError) -> Host:
        return MonitoredHost(self._agent, self.death, gone)

    def death(self) -> str:
        domain = listed(self._machine, self.spec.own_netns)
        if domain is None:
            return f"{self.spec.title}: its domain {self.spec.own_netns} is gone"
        if not domain.trouble:
            return ""
        # A domain does not report that it is paused: its last output is the agent's.
        return f"{self.spec.title}: its domain {domain.trouble}{'' if domain.is_paused else self._last_words()}"

    def cpu_s(self) -> float:
        """Return the CPU time of its vCPUs in seconds; Xen's resolution is 0.1 s."""
        return self._domain.cpu_s

    def memory_bytes(self) -> int:
        return self._domain.memory_mib << 20

    def console(self) -> str:
        return self._console.words(recent=True)

    def facts(self) -> dict[str, str]:
        options = self._options
        info = dict(_INFO.findall(run_checked(self._machine, ["xl", "info"])))
        image = find_image(options.image)
        return {
            "mode": options.mode,
            "xen": info.get("xen_version", "unknown"),
            "scheduler": info.get("xen_scheduler", "unknown"),
            "dom0_vcpus": str(domain_0(self._machine).vcpus),
            "image": f"{image.name} {image.digest[:12]}",
            **({"nic": options.nic} if self.spec.nics else {}),
            **({"pin": " ".join(",".join(map(str, cpus)) for cpus in options.pin)} if options.pin else {}),
            "cpus": str(options.cpus),
            "memory": f"{options.memory} MiB",
        }

    def stop(self) -> None:
        """Destroy it; harmless when it is gone."""
        with suppress(TestbedError):  # domain 0 has gone or does not answer; undoing AddDomain reports it
            destroy(self._machine, self.spec.own_netns)
        self._agent.close()

    @property
    def _domain(self) -> Listed:
        domain = listed(self._machine, self.spec.own_netns)
        if domain is None:
            raise TestbedError(f"{self.spec.title}: its domain {self.spec.own_netns} is gone")
        return domain

    def _hopeless(self) -> str:
        """Return why it will never answer; checked every 2 s only."""
        if time.monotonic() - self._looked_s < _LOOK_S:
            return ""
        self._looked_s = time.monotonic()
        trouble = trouble_in(self._console.words())
        return f"{self.spec.title}: {trouble}" if trouble else self.death()

    def _last_words(self) -> str:
        console = self._console.words(recent=True)
        words = trouble_in(console) or next(reversed(console.splitlines()), "")
        return f": {words}" if words else ""
