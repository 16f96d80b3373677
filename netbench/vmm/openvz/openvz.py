"""VMM `openvz`: containers of OpenVZ and Virtuozzo. Contract only: it was never run against OpenVZ.

It follows vzctl(8), vzlist(8) and prlctl(8), and was tested against programs that emulate their answers.
"""

import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Self
from zlib import crc32

from pydantic import BeforeValidator, Field, model_validator

from netbench.errors import KeyedError, MachineGoneError, MissingError, TestbedError, UsageError
from netbench.hosts.base import GoneError, Host, run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.trusted_code import search_path
from netbench.linux.changes import Change, MovePort
from netbench.linux.requirements import Facility
from netbench.model.fields import Memory
from netbench.model.virtualisation import DurationEstimate, Virtualisation
from netbench.vmm.attachment import Attachment, host_mac
from netbench.vmm.base import GuestOptions, GuestSpec, RunningGuest, Vmm
from netbench.vmm.connected_guest import ConnectedGuest, GuestByCommand
from netbench.vmm.openvz.container import AddContainer, AddContainerNic, OpenVzContainer, OpenVzTool, StartContainer

NEVER_RUN = "contract only, never run against OpenVZ"
KERNEL = Path("/proc/vz")  # exists in OpenVZ's kernels
_REMEDY = "install OpenVZ or Virtuozzo and boot its kernel (https://wiki.openvz.org, https://docs.virtuozzo.com)"
# Numbers up to 100 are reserved (vzctl(8)), the largest is 2147483644; users count up from 101.
_FIRST_NUMBER = 1_000_000_000
# The default of both tools is 1000, the range 8 to 500000. netbench's usual weight is 100, its minimum 1.
_UNITS_OF_WEIGHT = 10
_POLL_S = 0.1
_FORWARDED_BY = "the host's kernel, in softirqs not charged to the container"


def find_tool(tool: str, _: str) -> str:
    """Return the path of one of the tools; MissingError without it or without OpenVZ's kernel."""
    path = shutil.which(tool, path=search_path())
    if path is None:
        raise MissingError(f"{tool} is not installed on this host")
    if not KERNEL.exists():
        raise MissingError(f"the kernel of this host is not OpenVZ's: it has no {KERNEL}")
    return path


def _text(value: object) -> object:
    return str(value) if type(value) is int else value


# Excludes words that a tool would take for an option.
Word = Annotated[str, BeforeValidator(_text), Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$")]


class OpenVzOptions(GuestOptions):
    """A container of OpenVZ that forwards between two virtual Ethernet interfaces per stream.

    It is made from the OS template `template` (empty: the default of its machine, DEF_OSTEMPLATE in vz.conf(5)) and
    destroyed at the end. Alternatively, `container` is the number or name of an existing one, which is only started and
    stopped. Memory is in MiB.
    """

    tool: OpenVzTool = "vzctl"
    """vzctl (OpenVZ 6) or prlctl (Virtuozzo, OpenVZ 7)."""
    template: Word = ""
    """OS template. Default: DEF_OSTEMPLATE of vz.conf(5)."""
    container: Word = ""
    """Existing container instead, by number or name."""
    memory: Memory | None = None
    """Memory. Default: 512M."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.container and (self.template or self.memory):
            given = "template" if self.template else "memory"
            raise KeyedError(given, f"container {self.container} has its own; leave {given} or container out")
        return self


class OpenVz(Vmm):
    """A container of OpenVZ 6 or Virtuozzo 7: contract only, never run against OpenVZ.

    Its entitlement becomes CPUUNITS, CPULIMIT and CPUMASK of the container. Softirqs of the machine's kernel forward
    its frames. Its CPU time is unknown: /proc/vz/vestat reports it in jiffies of no documented length, and `prlctl
    statistics` as differences between two calls.
    """

    options: OpenVzOptions
    Options: ClassVar[type[GuestOptions]] = OpenVzOptions
    kinds = (Virtualisation.OS_LEVEL,)
    supports = replace(Vmm.supports, attachments=("veth",), pinning=("the whole container",))
    unproven = NEVER_RUN
    applies_cpu_shares: bool = True
    pace: ClassVar[DurationEstimate] = DurationEstimate(bring_up_s=20.0, trial_s=0.5)
    may_need = tuple(
        Facility(tool, "containers of OpenVZ", _REMEDY, partial(find_tool, tool), signs=(tool, str(KERNEL)))
        for tool in ("vzctl", "prlctl")
    )

    def needs(self) -> frozenset[str]:
        return frozenset({self.options.tool, "vzctl"})

    def attachment(self, spec: GuestSpec) -> Attachment:
        """Return a pair that OpenVZ makes once the container runs (vzctl(8), --netif_add)."""
        of = self._container_of(spec)

        def changes(netns: str | None, interface: str, mac: str, nic: str) -> Iterator[Change]:
            yield AddContainerNic(of.tool, of.ident, interface, mac, host_mac(mac))
            if netns:
                yield MovePort(interface, netns)

        return Attachment("veth", frozenset({"veth"}), changes)

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        """Yield the container and its start, because NICs can be attached only to a running container.

        UsageError for CPU shares of a container that netbench did not make.
        """
        options, of = self.options, self._container_of(spec)
        shares = _cpu_options(spec)
        if options.container and shares:
            raise UsageError(
                f"container {options.container} is not netbench's, so netbench does not set its CPU shares: leave "
                f"host_cpus, cpu_weight and cpu_limit out, and run `{shlex.join(of.command('set', *shares))}`"
            )
        if not options.container:
            memory = 512 if options.memory is None else options.memory
            features = ("bridge",) if options.forward == "bridge" else ()
            yield AddContainer(of.tool, of.ident, spec.own_netns, options.template, memory, tuple(shares), features)
        yield StartContainer(of.tool, of.ident, own=not options.container)

    def command(self, spec: GuestSpec) -> str:
        return shlex.join(self._container_of(spec).inside(["true"]))

    def start(self, spec: GuestSpec, host: Host) -> RunningGuest:
        guest = OpenVzGuest(spec, host, self._container_of(spec), own=not self.options.container)
        if death := guest.death():
            raise TestbedError(death)
        return guest

    def _container_of(self, spec: GuestSpec) -> OpenVzContainer:
        """Return the container by a name or number derived from the guest, unique among guests and runs."""
        if self.options.tool == "prlctl":
            return OpenVzContainer("prlctl", self.options.container or spec.own_netns)
        number = _FIRST_NUMBER + crc32(spec.own_netns.encode()) % _FIRST_NUMBER
        return OpenVzContainer("vzctl", self.options.container or str(number))


class OpenVzGuest(ConnectedGuest):
    """A running container; its first process may not run commands yet."""

    def __init__(self, spec: GuestSpec, host: Host, of: OpenVzContainer, *, own: bool) -> None:
        super().__init__(spec, host)
        self._container = of
        self._own = own
        self._connection = OpenVzHost(self, self._machine, of)

    def await_answer(self, limit_s: float) -> None:
        """Return once a command runs in it; TestbedError when none does, or it has stopped."""
        probe = self._container.inside(["true"])
        answered = wait_until(lambda: self._machine.run(probe).exit_code == 0 or bool(self.death()), limit_s, _POLL_S)
        if death := self.death():
            raise TestbedError(death)
        if not answered:
            raise TestbedError(
                f"{self.spec.title}: its container {self._container.ident} runs no command in {limit_s:g} s"
            )

    def death(self) -> str:
        exists, runs = self._container.status(self._machine)
        what = "has stopped" if exists else "is gone"
        return "" if runs else f"{self.spec.title}: its container {self._container.ident} {what}"

    def cpu_s(self) -> None:
        """Return None: unknown."""

    def memory_bytes(self) -> None:
        """Return None: unknown."""

    def facts(self) -> dict[str, str]:
        version = run_checked(self._machine, [self._container.tool, "--version"]).strip()
        return {
            "openvz": version,
            "container": self._container.ident,
            "driver": NEVER_RUN,
            "forwarded_by": _FORWARDED_BY,
        }

    def stop(self) -> None:
        """Stop netbench's own container; undoing StartContainer stops another one, if it did not run before."""
        with suppress(MachineGoneError):  # the container is gone with its machine
            if self._own:
                self._container.stop(self._machine)


class OpenVzHost(GuestByCommand):
    """A container as a host, by `vzctl exec2` or `prlctl exec`.

    `nsenter` is not used: OpenVZ 6 has a kernel without support for joining its containers' namespaces.
    """

    def __init__(self, guest: OpenVzGuest, machine: Host, of: OpenVzContainer) -> None:
        super().__init__(guest.spec, machine)
        self._guest = guest
        self._container = of

    def _command(self, argv: Sequence[str]) -> list[str]:
        return self._container.inside(argv)

    def _require_alive(self) -> None:
        if death := self._guest.death():
            raise GoneError(death)


def _cpu_options(spec: GuestSpec) -> list[str]:
    """Return both tools' options for CPU shares (100 is the usual weight; 1.0 is one CPU, i.e. 100 percent)."""
    options = ["--cpuunits", str(spec.weight * _UNITS_OF_WEIGHT)] if spec.weight is not None else []
    options += ["--cpulimit", str(round(spec.limit * 100))] if spec.limit is not None else []
    return options + (["--cpumask", ",".join(map(str, spec.host_cpus))] if spec.host_cpus else [])
