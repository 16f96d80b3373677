"""VMM `openvz`: containers of OpenVZ and Virtuozzo. Contract only: it was never run against OpenVZ.

It was tested against programs that emulate the answers of its tools. `vzctl` is that of OpenVZ 6 (vzctl(8), vzlist(8),
version 4.11). `prlctl` is that of Virtuozzo and OpenVZ 7 and later (prlctl(8)). Those have a vzctl(8) too: only it has
an option for the name of the machine's end of a NIC.
"""

import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self
from zlib import crc32

from pydantic import BeforeValidator, Field, model_validator

from netbench.errors import MachineGoneError, MissingError, TestbedError, UsageError
from netbench.hosts.base import GoneError, Host, run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.trusted_code import search_path
from netbench.linux.changes import Change, MachineState, MovePort
from netbench.linux.changes.base import not_ours
from netbench.linux.requirements import Facility
from netbench.model.fields import Memory
from netbench.model.paths import PREFIX
from netbench.model.virtualisation import DurationEstimate, Virtualisation
from netbench.vmm.base import Attachment, GuestOptions, GuestSpec, RunningGuest, Vmm, host_mac
from netbench.vmm.connected_guest import ConnectedGuest, GuestByCommand

OpenVzTool = Literal["vzctl", "prlctl"]

_CREATE_S = 900.0  # a template may have to be downloaded and unpacked
_CHANGE_S = 300.0  # `vzctl stop` alone waits up to 120 s for a container to shut down
_OF_PRLCTL = {"destroy": "delete", "exec2": "exec"}  # its names of commands of vzctl


@dataclass(frozen=True, slots=True)
class OpenVzContainer:
    """A container, identified by its number (`vzctl`, which also accepts names) or its name (`prlctl`)."""

    tool: OpenVzTool
    ident: str

    def command(self, action: str, *words: str) -> list[str]:
        """Return a command of its tool for it; `action` is the name of vzctl's command."""
        return [self.tool, action if self.tool == "vzctl" else _OF_PRLCTL.get(action, action), self.ident, *words]

    def inside(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs a command in it, with that command's exit code: by its shell, as one string."""
        return self.command("exec2", shlex.join(argv))

    def status(self, host: Host) -> tuple[bool, bool]:
        """Return whether the container exists, and whether it runs; TestbedError for unexpected output.

        The output is one line: `CTID 101 exist mounted running` (vzctl(8), "status"), `CT name exist running` (prlctl).
        """
        command = self.command("status")
        output = run_checked(host, command, timeout_s=60.0).strip()
        words = output.split()[2:]  # a container may be called `running`
        if not {"exist", "deleted"} & set(words):
            raise TestbedError(f"`{' '.join(command)}` printed an unknown status: {output or 'nothing'}")
        return "exist" in words, "exist" in words and "running" in words

    def stop(self, host: Host, *, at_once: bool = True) -> None:
        """Stop it if it runs: at once, or by a shutdown."""
        if self.status(host)[1]:
            words = ("--fast" if self.tool == "vzctl" else "--kill",) if at_once else ()
            run_checked(host, self.command("stop", *words), timeout_s=_CHANGE_S)


@dataclass(frozen=True, slots=True)
class OpenVzChange(Change):
    """A change to one container, by its name or number in `tool`."""

    tool: OpenVzTool
    ident: str

    @property
    def _container(self) -> OpenVzContainer:
        return OpenVzContainer(self.tool, self.ident)

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        raise NotImplementedError

    @property
    def command(self) -> str:
        return " && ".join(map(shlex.join, self._commands))

    def make(self, host: Host) -> None:
        for command in self._commands:
            run_checked(host, command, timeout_s=_CREATE_S)


@dataclass(frozen=True, slots=True)
class AddContainer(OpenVzChange):
    """A container of netbench, made from a template (empty: the default in vz.conf(5)); undo stops and destroys it.

    Its memory, its CPU `shares` (options of both tools) and its kernel `features` are set permanently.
    """

    name: str
    template: str
    memory_mib: int
    shares: tuple[str, ...] = ()
    features: tuple[str, ...] = ()

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        source = ["--ostemplate", self.template] if self.template else []
        features = ["--features", ",".join(f"{feature}:on" for feature in self.features)] if self.features else []
        settings, memory = [*self.shares, *features], f"{self.memory_mib}M"
        if self.tool == "prlctl":
            return [
                ["prlctl", "create", self.name, *source, "--vmtype", "ct"],
                self._container.command("set", "--autostart", "off", "--memsize", memory, *settings),
            ]
        return [
            self._container.command("create", *source, "--name", self.name),
            # "you must only set --ram and --swap"
            self._container.command("set", "--onboot", "no", "--ram", memory, "--swap", "0", *settings, "--save"),
        ]

    def found(self, look: MachineState) -> Self:
        if self._container.status(look.host)[0]:
            raise not_ours(f"the container {self.ident}")
        return self

    def undo(self, host: Host) -> None:
        if not self.name.startswith(PREFIX) or not self._container.status(host)[0]:
            return
        if self.tool == "vzctl":
            # One with another name was made by somebody else meanwhile. One that is half made has no name (`-`) yet.
            name = run_checked(host, ["vzlist", "-a", "-H", "-t", "-o", "name", self.ident]).strip()
            if name not in ("", "-", self.name):
                return
        elif self.ident != self.name:
            return
        self._container.stop(host)
        run_checked(host, self._container.command("destroy"), timeout_s=_CHANGE_S)


@dataclass(frozen=True, slots=True)
class StartContainer(OpenVzChange):
    """Start a container; one that `ran` before is left unchanged. Undo stops netbench's `own` containers at once."""

    own: bool
    ran: bool = False

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        return [] if self.ran else [self._container.command("start")]

    def found(self, look: MachineState) -> Self:
        exists, runs = self._container.status(look.host)
        if not exists:
            lister = "vzlist --all" if self.tool == "vzctl" else "prlctl list --all"
            raise TestbedError(f"there is no container {self.ident}: name one that `{lister}` lists")
        return replace(self, ran=runs)

    def undo(self, host: Host) -> None:
        if not self.ran:
            self._container.stop(host, at_once=self.own)


@dataclass(frozen=True, slots=True)
class AddContainerNic(OpenVzChange):
    """A NIC of a running container: a pair of virtual Ethernet interfaces, both ends named `nic`.

    The filter of MAC addresses, on by default, goes off. Nothing is saved (no --save): the NIC is removed when the
    container stops.
    """

    nic: str
    mac: str
    host_mac: str

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        change = ["vzctl", "set", self.ident]
        return [
            [*change, "--netif_add", f"{self.nic},{self.mac},{self.nic},{self.host_mac}"],
            [*change, "--ifname", self.nic, "--mac_filter", "off"],
        ]

    def found(self, look: MachineState) -> Self:
        look.refuse_existing(None, self.nic)
        return self

    def undo(self, host: Host) -> None:
        # It is gone if the container has stopped, and may never have been made.
        if self._container.status(host)[1] and host.run(["ip", "link", "show", "dev", self.nic]).exit_code == 0:
            run_checked(host, ["vzctl", "set", self.ident, "--netif_del", self.nic], timeout_s=_CHANGE_S)


NEVER_RUN = "contract only, never run against OpenVZ"
KERNEL = Path("/proc/vz")  # exists in OpenVZ's kernels
_REMEDY = "install OpenVZ or Virtuozzo and boot its kernel (https://wiki.openvz.org, https://docs.virtuozzo.com)"
# Numbers up to 100 are reserved (vzctl(8)), the largest is 2147483644; users count up from 101.
_FIRST_NUMBER = 1_000_000_000
# The default of both tools is 1000, the range 8 to 500000. netbench's usual weight is 100, its minimum 1.
_UNITS_OF_WEIGHT = 10
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
    own_kernel: ClassVar[bool] = False
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
