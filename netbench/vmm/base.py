"""The seam between a guest that forwards and the program that starts it: a VMM or a container runtime."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import ConfigDict, field_validator

from netbench.errors import KeyedError, TestbedError
from netbench.hosts.base import Host, Process, machine_name
from netbench.hosts.pipes import end
from netbench.hosts.remote_code import RunsNetbench, VmWithNetbench
from netbench.linux.changes import Change
from netbench.linux.locks import STATE_DIRECTORY
from netbench.linux.requirements import Requirement
from netbench.model.fields import BootLimit
from netbench.model.packet_options import PacketOptions
from netbench.model.paths import PREFIX, StreamPath
from netbench.model.virtualisation import DurationEstimate, NicKind, Supports, Virtualisation
from netbench.vmm.attachment import NETWORKS, Attachment, PrivateNetwork, tap


class GuestOptions(PacketOptions):
    """How a guest's kernel forwards, what it does to packets, and the limit of its boot time, in seconds.

    The same ways as `raw` except `xdp`: the process that keeps XDP programs attached runs on this machine only.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    forward: Literal["bridge", "route", "flowtable", "tc"] = "bridge"
    """How the guest's kernel forwards."""
    boot_limit: BootLimit = 60.0
    """Longest time to boot."""

    def refuse_forwarding(self, attachment: str) -> None:
        """Raise KeyedError for an option about frames that are forwarded, with an attachment that forwards none."""
        for name in GuestOptions.model_fields:
            if name in self.model_fields_set and name != "boot_limit":
                raise KeyedError(name, f"a guest with `attachment: {attachment}` forwards no frames; leave it out")

    @field_validator("forward", mode="before")
    @classmethod
    def _can_be_done(cls, forward: object) -> object:
        if forward == "xdp":
            raise ValueError("a guest cannot run netbench's XDP programs: use tc, or the UUT kind raw")
        return forward


@dataclass(frozen=True, slots=True)
class GuestNic:
    """A NIC of a guest: its MAC address, and the interface that is the machine's end of its attachment.

    `stream` is the stream whose frames it receives (`role` ingress) or sends (egress). For the frames of its reverse
    stream the roles are swapped. `network` is its private network, if it is in one.
    """

    interface: str
    mac: str
    stream: str = ""
    role: str = ""
    network: PrivateNetwork | None = None


@dataclass(frozen=True, slots=True)
class CableEnd:
    """A NIC of a VM that is a host, cabled to a NIC of another such VM.

    `interface` is its name inside the VM. `model` is virtio, e1000, e1000e or vmxnet3. The cable is a socket with the
    path `socket`. The VM that is started first creates it: that one `listens`.
    """

    interface: str
    mac: str
    model: str
    socket: Path
    listens: bool


@dataclass(frozen=True, slots=True)
class GuestSpec:
    """A guest to be started, without the options of its VMM.

    `cables` are NICs that are not attached to its machine. `directory` is for its files while it runs. `netns` is the
    network namespace of its machine in which it is attached. All its threads run on `host_cpus` (empty: any). They run
    in the control group of the file `cgroup_procs` (empty: the group of netbench), with `weight` and `limit` as in
    CpuShares.
    """

    name: str
    directory: Path
    nics: tuple[GuestNic, ...] = ()
    netns: str | None = None
    host_cpus: tuple[int, ...] = ()
    cgroup_procs: str = ""
    weight: int | None = None
    limit: float | None = None
    cables: tuple[CableEnd, ...] = ()

    @property
    def title(self) -> str:
        """The name of the guest in messages."""
        return f"guest {self.name}"

    @property
    def own_netns(self) -> str:
        """The name of its network namespace, if it has one on its machine; unique among guests."""
        return f"{PREFIX}{self.directory.name}"


# Runs a command with its own mounts and processes; all of them end with it.
ISOLATED = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


class RunningGuest:
    """A started guest, as a driver returns it. By default it reports neither CPU time nor memory nor console.

    If it lives as long as a `process` of its machine, the defaults derive its death and its end from that process.
    """

    process: Process | None = None
    quiet_time_s: float = 0.05  # how long frames may stay in its attachments while no counter moves
    virtualisation: Virtualisation | None = None  # if its driver could not determine it before: QEMU, with working KVM

    def __init__(self, spec: GuestSpec) -> None:
        self.spec = spec

    def await_answer(self, limit_s: float) -> None:
        """Return once its host() runs commands; TestbedError, as early as possible, when it does not.

        The default returns at once unless the guest is dead.
        """
        if death := self.death():
            raise TestbedError(death)

    def host(self, gone: type[TestbedError] = TestbedError) -> Host:
        """Return the host that runs commands inside it; raises `gone`, with the cause of death, once it is dead."""
        raise NotImplementedError

    def death(self) -> str:
        """Return why it does not run (any more): ended, paused, crashed; empty while it runs."""
        code = self.process.poll() if self.process else None
        return "" if code is None else f"{self.spec.title}: its process ended with exit code {code}"

    def clocks(self) -> tuple[int, int]:
        """Return its CLOCK_MONOTONIC and CLOCK_REALTIME in ns; TestbedError if unavailable or without an answer."""
        raise TestbedError(f"{self.spec.title}: its clocks cannot be read")

    def set_link(self, interface: str, *, up: bool) -> None:
        """Switch the carrier of one of its cabled NICs on or off; frames in transit are lost.

        ValueError if it has no such NIC, TestbedError if its VMM does not do it.
        """
        raise ValueError(f"{self.spec.title} has no cabled NIC {interface}")

    def cpu_s(self) -> float | None:
        """Return the CPU time it has used on its machine so far, in seconds; None if that cannot be separated."""
        return None

    def memory_bytes(self) -> int | None:
        """Return the memory that its processes use on its machine now; None if that cannot be separated."""
        return None

    def console(self) -> str:
        """Return the text it has written to its console so far."""
        return ""

    def facts(self) -> dict[str, str]:
        """Return the facts that matter for reading its results, once it answers.

        `emulated` gives the reason if its CPU is emulated. `accelerator` is what runs its instructions (`kvm`, `tcg`),
        if there is a choice. `nic` is the model of its NICs.
        """
        return {}

    def stop(self) -> None:
        """End it; harmless when it has ended, and when called twice."""
        if self.process:
            end(self.process)


class Vmm:
    """A driver: it starts guests of one kind on a machine. The class attributes default to the most common values."""

    # How the topology describes its guests; the only argument of __init__.
    Options: ClassVar[type[GuestOptions]] = GuestOptions
    may_need: ClassVar[
        tuple[Requirement, ...]
    ] = ()  # requirements of its guests alone: how to detect and how to install them
    runs_hosts: ClassVar[bool] = False  # whether hosts of kind vm are its guests: its options are those of a VmSpec too
    kinds: ClassVar[tuple[Virtualisation, ...]] = ()  # possible kinds of its guests; empty: unknown
    nic_models: ClassVar[Mapping[str, NicKind]] = {}  # the NIC models its guests may have, if there is a choice
    supports: ClassVar[Supports] = Supports(
        attachments=("tap",),
        pinning=("the whole guest",),
        shares=("weight", "limit"),
        counters=("attachment", "NICs, queue and IP layer inside"),
    )
    # The facility (in may_need) without which the CPU of its guests is emulated; empty: none.
    emulated_without: ClassVar[str] = ""
    # How far it was tested, if never with frames: `API only, against a simulator`, `contract only, never run`.
    unproven: ClassVar[str] = ""
    # Whether it applies weight and limit from the spec of a guest itself; no control group is made then.
    applies_cpu_shares: bool = False
    # Whether its guests are on another machine that source and sink are cabled to: streams have no NICs in between.
    elsewhere: ClassVar[bool] = False
    # Whether its guests have kernels that schedule them and count their CPU time. Default: unless `kinds` is OS_LEVEL.
    own_kernel: ClassVar[bool] = True
    pace: ClassVar[DurationEstimate] = DurationEstimate()
    pace_in_vm: ClassVar[DurationEstimate | None] = None  # in a VM with an emulated CPU; None: the same

    def __init_subclass__(cls, **more: object) -> None:
        super().__init_subclass__(**more)
        if "kinds" in cls.__dict__ and "own_kernel" not in cls.__dict__:
            cls.own_kernel = set(cls.kinds) != {Virtualisation.OS_LEVEL}

    def __init__(self, options: GuestOptions) -> None:
        self.options = options

    def pace_of(self, paths: Sequence[StreamPath]) -> DurationEstimate:
        """Return how long operations take with its guests on these paths."""
        return (self.pace_in_vm if on_vm(paths) else None) or self.pace

    def check(self, paths: Sequence[StreamPath]) -> None:
        """Raise UsageError for paths and options that it does not support on this machine."""

    def needs(self) -> frozenset[str]:
        """Return its requirements of the machine beyond its attachments, as `netbench doctor` names them."""
        return frozenset()

    def load_needs(self) -> frozenset[str] | None:
        """Return the requirements of a load inside its guests."""
        return frozenset()

    @property
    def virtualisation(self) -> Virtualisation | None:
        """Return the kind of its guests under its options; None if only a running guest shows it."""
        return self.kinds[0] if len(self.kinds) == 1 else None

    @property
    def nic_model(self) -> str:
        """Return the NIC model that its guests need a driver for; empty if there is no choice."""
        return str(getattr(self.options, "nic", ""))

    @property
    def network(self) -> str:
        """The private network of its guests, a key of NETWORKS; empty: they are attached to NICs of the machine."""
        attachment = str(getattr(self.options, "attachment", ""))
        return attachment if attachment in NETWORKS else ""

    def attachment(self, spec: GuestSpec) -> Attachment:
        """Return how the NICs of a guest are attached to their machine."""
        return tap()

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        """Return the changes to make on the machine before a guest is attached and started."""
        return iter(())

    def command(self, spec: GuestSpec) -> str:
        """Return the command that start() runs, for `--dry-run`; nothing is executed."""
        raise NotImplementedError

    def start(self, spec: GuestSpec, host: Host) -> RunningGuest:
        """Start a guest on a host, after its changes() are made and its NICs are attached.

        It need not answer yet. TestbedError, with nothing left behind, when it ends at once.
        """
        raise NotImplementedError


def is_own_vm(host: Host) -> bool:
    """Return whether a host is one of netbench's VMs, rather than this machine or a host over SSH."""
    if not machine_name(host):
        return False
    while not isinstance(host, RunsNetbench) and (inner := getattr(host, "made_of", None)):
        host = inner
    return isinstance(host, VmWithNetbench) or not isinstance(host, RunsNetbench)


def on_vm(paths: Sequence[StreamPath]) -> bool:
    """Return whether the machine of a guest on these paths is a VM; all its NICs are on one machine."""
    return any(path.ingress is not None and path.ingress.machine is not None for path in paths)


def guest_directory(run_id: str, name: str) -> Path:
    """Return the directory for a guest's sockets in one run; socket paths have at most 107 characters (unix(7))."""
    return STATE_DIRECTORY / "vm" / f"{run_id[-12:]}-{name}"
