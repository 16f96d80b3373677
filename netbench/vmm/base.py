"""The seam between a guest that is to forward and what starts it: a virtual machine monitor, a container runtime, …"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, field_validator

from netbench.errors import TestbedError
from netbench.hosts.base import Host, Process
from netbench.hosts.lines import end
from netbench.linux.changes import Change
from netbench.linux.needs import Need
from netbench.linux.state import STATE_DIRECTORY
from netbench.model.fields import BootLimit
from netbench.model.interfaces import PREFIX
from netbench.model.pace import Pace
from netbench.model.paths import StreamPath
from netbench.model.virtualisation import NicKind, Supports, Virtualisation
from netbench.vmm.attachment import Attachment, Tap


class GuestOptions(BaseModel):
    """What a topology says of any guest: how its kernel forwards, and how long it may take to boot, in seconds.

    As `raw` does, but for `xdp`: what holds its programs runs on this machine only.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    forward: Literal["bridge", "route", "flowtable", "tc"] = "bridge"
    boot_limit: BootLimit = 60.0

    @field_validator("forward", mode="before")
    @classmethod
    def _can_be_done(cls, forward: object) -> object:
        if forward == "xdp":
            raise ValueError("in a guest nobody holds netbench's XDP programs: use tc, or the UUT kind raw")
        return forward


@dataclass(frozen=True, slots=True)
class GuestNic:
    """A NIC of a guest: its MAC address, and the interface that is the machine's end of its attachment.

    `stream` is whose frames it takes in (`role` ingress) or lets out (egress); it is the other way round for those of
    that stream's way back.
    """

    interface: str
    mac: str
    stream: str = ""
    role: str = ""


@dataclass(frozen=True, slots=True)
class CableEnd:
    """A NIC of a VM that is a host, cabled to one of another such VM.

    `interface` is what the VM calls it. `model` is what it is: virtio, e1000, e1000e, vmxnet3. The cable is a socket
    with the path `socket`, made by the one that `listens`: the VM that is started first.
    """

    interface: str
    mac: str
    model: str
    socket: Path
    listens: bool


@dataclass(frozen=True, slots=True)
class GuestSpec:
    """A guest to be started, beside the options of its VMM.

    `cables` are NICs that are attached to nothing of its machine. `directory` is for what it keeps while it runs;
    `netns` is the network namespace of its machine in which it is attached. All its threads run on `host_cpus` (empty:
    any), and in the control group that `door` is the file to enter by (empty: the one that netbench is in), which has
    its `weight` and `limit` (as in an Entitlement).
    """

    name: str
    directory: Path
    nics: tuple[GuestNic, ...] = ()
    netns: str | None = None
    host_cpus: tuple[int, ...] = ()
    door: str = ""
    weight: int | None = None
    limit: float | None = None
    cables: tuple[CableEnd, ...] = ()

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"guest {self.name}"

    @property
    def own_netns(self) -> str:
        """What a network namespace of its own is called, where it has one on its machine: no other guest's is."""
        return f"{PREFIX}{self.directory.name}"


class RunningGuest:
    """A guest that was started: what a driver hands out. By default it costs nothing and says nothing.

    Where it lives as long as a `process` of its machine, that is all there is to know of its death and its end.
    """

    process: Process | None = None
    quiet_time_s: float = 0.05  # how long frames may stay in its attachments while no counter moves
    virtualisation: Virtualisation | None = None  # where its driver could not know before: QEMU, with KVM if it works

    def __init__(self, spec: GuestSpec) -> None:
        self.spec = spec

    def await_answer(self, limit_s: float) -> None:
        """Return once its host() runs commands; TestbedError when it does not, as soon as that is known.

        By default it does at once, unless it is dead.
        """
        if death := self.death():
            raise TestbedError(death)

    def host(self, gone: type[TestbedError] = TestbedError) -> Host:
        """What is run inside it is run here; raises `gone`, with how it died, once it is dead."""
        raise NotImplementedError

    def death(self) -> str:
        """Why it is not at work (any more): ended, paused, crashed; empty while it is."""
        code = self.process.poll() if self.process else None
        return "" if code is None else f"{self.spec.title}: its process ended with exit code {code}"

    def clocks(self) -> tuple[int, int]:
        """CLOCK_MONOTONIC and CLOCK_REALTIME in it, in ns; TestbedError where nobody tells, or it does not answer."""
        raise TestbedError(f"{self.spec.title}: nobody tells what its clocks show")

    def set_link(self, interface: str, *, up: bool) -> None:
        """Take the carrier from one of its cabled NICs, or give it back; frames on the way are lost meanwhile.

        ValueError where it has none of that name, TestbedError where whoever runs it does not do so.
        """
        raise ValueError(f"{self.spec.title} has no cabled NIC {interface}")

    def cpu_s(self) -> float | None:
        """CPU time it has cost its machine so far, in seconds; None where that cannot be told apart."""
        return None

    def memory_bytes(self) -> int | None:
        """Memory that its own processes take of its machine now; None where that cannot be told apart."""
        return None

    def console(self) -> str:
        """What it has written to its console so far."""
        return ""

    def facts(self) -> dict[str, str]:
        """What a reader of its numbers must know, once it answers.

        `emulated` says why, when its CPU is emulated; `accelerator` what runs its instructions, where that is a choice
        (`kvm`, `tcg`); `nic` is the model of its NICs.
        """
        return {}

    def stop(self) -> None:
        """End it; harmless when it has ended, and when called twice."""
        if self.process:
            end(self.process)


class Vmm:
    """A driver: it starts guests of one kind on a machine. What its class does not say is as with most of them."""

    # How the topology describes its guests; the only argument of __init__.
    Options: ClassVar[type[GuestOptions]] = GuestOptions
    may_need: ClassVar[tuple[Need, ...]] = ()  # what only its guests need: how that is looked for, and added
    runs_hosts: ClassVar[bool] = False  # whether hosts of kind vm are its guests: its options are those of a VmSpec too
    kinds: ClassVar[tuple[Virtualisation, ...]] = ()  # what its guests may be; not said: unknown
    nic_models: ClassVar[Mapping[str, NicKind]] = {}  # that its guests may have, where that is a question
    supports: ClassVar[Supports] = Supports(
        attachments=("tap",),
        pinning=("the whole guest",),
        shares=("weight", "limit"),
        counters=("attachment", "NICs, queue and IP layer inside"),
    )
    # The facility (as of may_need) without which the CPU of its guests is emulated; empty: they need none.
    emulated_without: ClassVar[str] = ""
    # How far it was ever tried, where no frames moved: `API only, against a simulator`, `contract only, never run`.
    unproven: ClassVar[str] = ""
    # Puts weight and limit of its guests in force itself, from their spec: no control group is made for them.
    entitles: bool = False
    # Its guests are on another machine, to which cables lead from source and sink: streams have no NICs between these.
    elsewhere: ClassVar[bool] = False
    own_kernel: ClassVar[bool] = True  # its guests are scheduled, and count CPU time, by a kernel of their own
    pace: ClassVar[Pace] = Pace()
    pace_in_vm: ClassVar[Pace | None] = None  # where a VM is its host, as a rule on an emulated CPU; None: the same

    def __init__(self, options: GuestOptions) -> None:
        self.options = options

    def pace_of(self, paths: Sequence[StreamPath]) -> Pace:
        """How long things take with its guests on these paths."""
        return (self.pace_in_vm if on_vm(paths) else None) or self.pace

    def check(self, paths: Sequence[StreamPath]) -> None:
        """UsageError for paths and options that it cannot serve on this machine."""

    def needs(self) -> frozenset[str]:
        """What the machine must be able to do for it, beside its attachments, in the words of `netbench doctor`."""
        return frozenset()

    def load_needs(self) -> frozenset[str] | None:
        """Likewise for a load inside its guests."""
        return frozenset()

    @property
    def virtualisation(self) -> Virtualisation | None:
        """Which of its kinds its guests are, by its options; None where only a running guest can tell."""
        return self.kinds[0] if len(self.kinds) == 1 else None

    @property
    def nic_model(self) -> str:
        """What its guests need a driver for; empty where that is no question."""
        return ""

    def attachment(self, spec: GuestSpec) -> Attachment:
        """How the NICs of a guest are attached to their machine."""
        return Tap()

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        """What is to be there on the machine before a guest is attached and started."""
        return iter(())

    def command(self, spec: GuestSpec) -> str:
        """What start() runs, for `--dry-run`: nothing is tried out for it."""
        raise NotImplementedError

    def start(self, spec: GuestSpec, host: Host) -> RunningGuest:
        """Start a guest on a host, once what changes() names is made and its NICs are attached.

        TestbedError, with nothing left behind, when it ends at once. It need not answer yet.
        """
        raise NotImplementedError


def on_vm(paths: Sequence[StreamPath]) -> bool:
    """Whether the machine of a guest on these paths is a VM; its NICs are all on one machine."""
    return any(path.ingress is not None and path.ingress.machine is not None for path in paths)


def guest_directory(run_id: str, name: str) -> Path:
    """Where a guest of one run keeps its sockets, whose paths have at most 107 characters (unix(7))."""
    return STATE_DIRECTORY / "vm" / f"{run_id[-12:]}-{name}"
