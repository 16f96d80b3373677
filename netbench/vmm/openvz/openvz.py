"""VMM `openvz`: containers of OpenVZ and Virtuozzo. Contract only: it was never run against OpenVZ.

It follows vzctl(8), vzlist(8) and prlctl(8), and was tested against programs that emulate their answers.
"""

import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Self
from zlib import crc32

from pydantic import BeforeValidator, Field, model_validator

from netbench.errors import MachineGoneError, MissingError, TestbedError, UsageError
from netbench.hosts.base import Completed, GoneError, Host, Process, RemoteByCommand, run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.host_wrappers import outside
from netbench.hosts.trusted_code import search_path
from netbench.linux.changes import Change, MovePort
from netbench.linux.requirements import Facility
from netbench.model.fields import Memory
from netbench.model.virtualisation import DurationEstimate, Virtualisation
from netbench.vmm.attachment import Attachment, host_mac
from netbench.vmm.base import GuestOptions, GuestSpec, RunningGuest, Vmm
from netbench.vmm.openvz.container import (
    AddContainer,
    AddContainerNic,
    OpenVzContainer,
    OpenVzTool,
    StartContainer,
    cpu_options,
)

NEVER_RUN = "contract only, never run against OpenVZ"
KERNEL = Path("/proc/vz")  # exists in OpenVZ's kernels
_REMEDY = "install OpenVZ or Virtuozzo and boot its kernel (https://wiki.openvz.org, https://docs.virtuozzo.com)"
# Numbers up to 100 are reserved (vzctl(8)), the largest is 2147483644; users count up from 101.
_FIRST_NUMBER = 1_000_000_000
_POLL_S = 0.1
_FORWARDED_BY = "the host's kernel, in softirqs that no container is charged with"


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
            raise ValueError(f"{given}: container {self.container} has its own; leave {given} or container out")
        return self


@dataclass(frozen=True, slots=True)
class Netif(Attachment):
    """A pair of virtual Ethernet interfaces that OpenVZ makes once the container runs (vzctl(8), --netif_add)."""

    kind: ClassVar[str] = "veth"
    needs: ClassVar[frozenset[str]] = frozenset({"veth"})

    container: OpenVzContainer

    def changes(self, netns: str | None, interface: str, mac: str, nic: str) -> Iterator[Change]:
        yield AddContainerNic(self.container.tool, self.container.ident, interface, mac, host_mac(mac))
        if netns:
            yield MovePort(interface, netns)


class OpenVz(Vmm):
    """A container of OpenVZ 6 or Virtuozzo 7: contract only, never run against OpenVZ.

    Its entitlement becomes CPUUNITS, CPULIMIT and CPUMASK of the container. Softirqs of the machine's kernel forward
    its frames. Its CPU time is unknown: /proc/vz/vestat reports it in jiffies of no documented length, and `prlctl
    statistics` as differences between two calls.
    """

    Options: ClassVar[type[GuestOptions]] = OpenVzOptions
    kinds = (Virtualisation.OS_LEVEL,)
    supports = replace(Vmm.supports, attachments=("veth",), pinning=("the whole container",))
    unproven = NEVER_RUN
    own_kernel: ClassVar[bool] = False
    applies_cpu_shares: bool = True
    pace: ClassVar[DurationEstimate] = DurationEstimate(bring_up_s=20.0, trial_s=0.5)
    may_need = tuple(
        Facility(tool, "containers of OpenVZ", _REMEDY, partial(find_tool, tool), signs=(tool, str(KERNEL)))
        for tool in ("vzctl", "prlctl")
    )

    def __init__(self, options: OpenVzOptions) -> None:
        super().__init__(options)
        self._options = options

    def needs(self) -> frozenset[str]:
        return self._container_of(GuestSpec("", Path())).needs

    def attachment(self, spec: GuestSpec) -> Netif:
        return Netif(self._container_of(spec))

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        """Yield the container and its start, because NICs can be attached only to a running container.

        UsageError for CPU shares of a container that netbench did not make.
        """
        options, of = self._options, self._container_of(spec)
        shares = cpu_options(spec.weight, spec.limit, spec.host_cpus)
        if options.container and shares:
            set_shares = shlex.join([of.tool, "set", options.container, *shares])
            raise UsageError(
                f"container {options.container} is not netbench's, so netbench does not set its CPU shares: leave "
                f"host_cpus, cpu_weight and cpu_limit out, and run `{set_shares}`"
            )
        if not options.container:
            memory = 512 if options.memory is None else options.memory
            features = ("bridge",) if options.forward == "bridge" else ()
            name = spec.own_netns
            yield AddContainer(of.tool, of.ident, name, options.template, memory, tuple(shares), features)
        yield StartContainer(of.tool, of.ident, own=not options.container)

    def command(self, spec: GuestSpec) -> str:
        return shlex.join(self._container_of(spec).run(["true"]))

    def start(self, spec: GuestSpec, host: Host) -> RunningGuest:
        guest = OpenVzGuest(spec, outside(host), self._container_of(spec), own=not self._options.container)
        if death := guest.death():
            raise TestbedError(death)
        return guest

    def _container_of(self, spec: GuestSpec) -> OpenVzContainer:
        """Return the container by a name or number derived from the guest, unique among guests and runs."""
        if self._options.tool == "prlctl":
            return OpenVzContainer("prlctl", self._options.container or spec.own_netns)
        number = _FIRST_NUMBER + crc32(spec.own_netns.encode()) % _FIRST_NUMBER
        return OpenVzContainer("vzctl", self._options.container or str(number))


class OpenVzGuest(RunningGuest):
    """A running container; its first process may not run commands yet."""

    def __init__(self, spec: GuestSpec, here: Host, of: OpenVzContainer, *, own: bool) -> None:
        super().__init__(spec)
        self._here = here
        self._container = of
        self._own = own

    def await_answer(self, limit_s: float) -> None:
        """Return once a command runs in it; TestbedError when none does, or it has stopped."""
        answered = wait_until(lambda: self._answers or bool(self.death()), limit_s, _POLL_S)
        if death := self.death():
            raise TestbedError(death)
        if not answered:
            raise TestbedError(
                f"{self.spec.title}: its container {self._container.ident} runs no command in {limit_s:g} s"
            )

    def host(self, gone: type[TestbedError] = GoneError) -> Host:
        return OpenVzHost(self.spec.name, self.spec.title, self._here, self, gone)

    def death(self) -> str:
        exists, runs = self._container.status(self._here)
        what = "has stopped" if exists else "is gone"
        return "" if runs else f"{self.spec.title}: its container {self._container.ident} {what}"

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs a command in it."""
        return self._container.run(argv)

    def facts(self) -> dict[str, str]:
        version = run_checked(self._here, [self._container.tool, "--version"]).strip()
        return {
            "openvz": version,
            "container": self._container.ident,
            "driver": NEVER_RUN,
            "forwarded_by": _FORWARDED_BY,
        }

    def stop(self) -> None:
        """Stop netbench's own container; undoing StartContainer stops another one, if it did not run before."""
        with suppress(MachineGoneError):  # the container is gone with its machine
            if self._own and self._container.status(self._here)[1]:
                run_checked(self._here, self._container.stop(at_once=True), timeout_s=120.0)

    @property
    def _answers(self) -> bool:
        return self._here.run(self.command(["true"])).exit_code == 0


class OpenVzHost(RemoteByCommand):
    """A container as a host, by `vzctl exec2` or `prlctl exec`; `gone` is raised once it has stopped.

    `nsenter` is not used: OpenVZ 6 has a kernel without support for joining its containers' namespaces.
    """

    def __init__(self, name: str, title: str, here: Host, guest: OpenVzGuest, gone: type[TestbedError]) -> None:
        super().__init__(name, title)
        self._here = here
        self._guest = guest
        self._gone = gone

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        done = self._here.run(self._guest.command(argv), stdin=stdin, timeout_s=timeout_s)
        if done.exit_code != 0 and (death := self._guest.death()):
            raise self._gone(death)
        return replace(done, argv=tuple(argv))

    def spawn(self, argv: Sequence[str]) -> Process:
        return self._here.spawn(self._guest.command(argv))
