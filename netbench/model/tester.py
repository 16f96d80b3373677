"""The actual tester: the source and the sink of each stream, and the machines of its hosts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import BaseModel

from netbench.model.documents import plain
from netbench.model.traffic import NapiPolicy, Receive

# Options for which an Identity has separate fields.
_APART = ("threads", "cpus")


@dataclass(frozen=True, slots=True)
class Identity:
    """The actual source or sink. Empty texts and None are unknown.

    `kind` is the name of the generator or of the kind of sink. `version` is that of the program, or of the kernel that
    does the work. `options` are those in effect, as text. It has `threads`, bound to `cpus` (none: any).
    """

    kind: str = ""
    version: str = ""
    options: Mapping[str, str] | None = None
    threads: int | None = None
    cpus: tuple[int, ...] | None = None

    def __str__(self) -> str:
        return f"{self.kind} ({self.details})"

    def completed(self, usual: "Identity") -> "Identity":
        """Return it with unknown values taken from `usual`; from another kind only the CPUs are taken."""
        cpus = usual.cpus if self.cpus is None else self.cpus
        if self.kind and self.kind != usual.kind:
            return replace(self, cpus=cpus)
        return Identity(
            usual.kind,
            self.version or usual.version,
            usual.options if self.options is None else self.options,
            usual.threads if self.threads is None else self.threads,
            cpus,
        )

    @property
    def details(self) -> str:
        """All but the kind, in one line: `Linux 6.1.0-31-amd64; pacing=lattice; 1 thread; CPU 0`."""
        options = " ".join(f"{name}={value}" for name, value in (self.options or {}).items())
        threads = "" if self.threads is None else f"{self.threads} thread{'s' * (self.threads != 1)}"
        return "; ".join(part for part in (self.version, options, threads, cpus_text(self.cpus)) if part)


@dataclass(frozen=True, slots=True)
class StreamEnds:
    """The source and the sink of one stream."""

    source: Identity
    sink: Identity


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """The location of a host of the topology, and its kernel. Empty texts and None are unknown.

    `machine` is the name of its VM or SSH host, None for this machine; `netns` its network namespace there.
    `virtualisation` and `container` describe what this machine itself runs in, `none` for nothing. `facts` of a VM are
    from its monitor; those of an SSH host are its address, and what synchronises its clock.
    """

    kernel: str
    machine: str | None
    netns: str | None
    virtualisation: str | None
    container: str | None
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """Its location as text."""
        around = {None: "virtualised or not is unknown", "none": "bare metal"}
        here = f"this machine ({around.get(self.virtualisation, f'virtualised: {self.virtualisation}')})"
        if self.container not in (None, "none"):
            here += f", in a container ({self.container})"
        if "ssh_address" in self.facts:
            here = f"another machine, by SSH to {self.facts['ssh_address']}"
        elif self.machine is not None:
            here = f"VM {self.machine}{_cpu_of(self.facts)}, on {here}"
        return f"network namespace {self.netns} of {here}" if self.netns else here


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    """How the UUT receives the frames of a stream: `receive` as of a link, and the kernel `thread`, bound to `cpus`.

    `remark` names a property that the topology requests and the kernel does not have. While a UUT of `cpus_of_uuts` is
    up, by name, the thread is bound to these CPUs instead. `policies_of_uuts` has the scheduling policy of the thread
    while a UUT is up, where it is not the default (SCHED_OTHER).
    """

    receive: Receive
    thread: str = field(default="", compare=False)  # differs each time
    cpus: tuple[int, ...] | None = None
    remark: str = ""
    cpus_of_uuts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    policies_of_uuts: Mapping[str, NapiPolicy] = field(default_factory=dict)

    @property
    def details(self) -> str:
        """In one line: `napi; kernel thread napi/nb-in1-8193; CPU 1; with UUT bridge CPU 0 SCHED_RR`."""
        thread = f"kernel thread {self.thread}" if self.thread else ""
        known = dict.fromkeys((*self.cpus_of_uuts, *self.policies_of_uuts))
        uuts = (" ".join(part for part in (f"with UUT {uut}", *self._of(uut)) if part) for uut in known)
        return "; ".join(part for part in (self.receive, thread, cpus_text(self.cpus), *uuts) if part)

    def _of(self, uut: str) -> tuple[str, str]:
        policy = self.policies_of_uuts.get(uut)
        return cpus_text(self.cpus_of_uuts.get(uut)), f"SCHED_{policy.upper()}" if policy else ""


@dataclass(frozen=True, slots=True)
class Identities:
    """The source and sink of each stream, and each host, by name; `since` is when they were recorded (ISO 8601).

    `links` are by stream: those over which a UUT that netbench configures receives frames.
    """

    since: str
    hosts: Mapping[str, HostIdentity]
    streams: Mapping[str, StreamEnds]
    links: Mapping[str, LinkIdentity] = field(default_factory=dict)

    @property
    def machines(self) -> dict[str, str | None]:
        """The VM that each host is on, by name; None for this machine."""
        return {name: host.machine for name, host in self.hosts.items()}


def options_text(options: BaseModel) -> dict[str, str]:
    """Return the options of a source or a sink as an Identity has them."""
    values = {name: value for name, value in plain(options).items() if name not in _APART}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}


def cpus_text(cpus: Sequence[int] | None) -> str:
    """Return CPUs as text; none means any CPU, and None is unknown."""
    if cpus is None:
        return ""
    return f"CPU{'s' * (len(cpus) > 1)} {','.join(map(str, cpus))}" if cpus else "any CPU"


def _cpu_of(facts: Mapping[str, str]) -> str:
    """Return how the CPUs of a VM are provided, according to its monitor."""
    if "emulated" in facts:
        return f" (CPU emulated: {facts['emulated']})"
    return f" (virtualised: {facts['accelerator']})" if "accelerator" in facts else " (CPU emulated or not is unknown)"


# The role of a thread in a trial. `ingress` receives the frames of a source at the UUT's end of a veth pair (NAPI),
# `uut` is a process of a guest that forwards (Open vSwitch in userspace).
Role = Literal["source", "sink", "ingress", "uut"]

# A stall of these changes the offered or forwarded load. A sink that waits loses frames, which it counts, or none.
_DECISIVE: tuple[Role, ...] = ("source", "ingress", "uut")


@dataclass(frozen=True, slots=True)
class ThreadDelay:
    """One thread of the tester or a guest while frames were sent, in seconds; None where that is unknown.

    `wait_s` is how long it waited for a CPU (run delay of schedstat). `stalled_s` is how long it did not run though it
    should have: it waited, was stopped or throttled, or its CPU was taken away. `stalled_s` omits the CPU time that
    other threads of the tester, and declared neighbours, used on its CPU, because they are part of the trial. No
    single stall was longer than `longest_s`. Unlike `stalled_s` it omits no sum of short waits, because a single wait
    of a few milliseconds fills a ring.
    """

    role: Role
    name: str
    wait_s: float | None = None
    stalled_s: float | None = None
    stream: str = ""
    longest_s: float | None = None


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Delays of the tester or its host during `window_s` seconds of sending; None where a value is unknown.

    `steal_s` is the CPU time that the hypervisor gave to other machines. `cpu_pressure_s` is how long some task waited
    for a CPU (/proc/pressure/cpu). `throttled_s` is how long CPU limits of netbench's control groups stopped it, all
    CPUs added up. `foreign_s` is the CPU time that programs outside the trial used; it is read in trials with flows.
    """

    window_s: float
    threads: tuple[ThreadDelay, ...] = ()
    steal_s: float | None = None
    cpu_pressure_s: float | None = None
    throttled_s: float | None = None
    foreign_s: float | None = None

    @property
    def contended_s(self) -> float:
        """An upper bound of the time that flows lost to other programs and other machines, in seconds.

        Other programs disturb only while something waits for a CPU. Kernels without pressure stall information do not
        show that.
        """
        return min(self.foreign_s or 0.0, self.cpu_pressure_s or 0.0) + (self.steal_s or 0.0)

    def stalled_of(self, stream: str) -> float | None:
        """Return the sum over the threads of one stream, except the sink's; None if it is unknown for all of them."""
        return _total(thread.stalled_s for thread in self.decisive_of(stream))

    def decisive_of(self, stream: str) -> list[ThreadDelay]:
        """Return the threads of one stream whose stalls change the offered or forwarded load."""
        return [thread for thread in self.threads if thread.role in _DECISIVE and thread.stream == stream]

    def longest_s(self, role: Role, stream: str) -> float:
        """Return an upper bound of the stalls of a role's threads for one stream; 0 where they are unknown."""
        return sum(thread.longest_s or 0.0 for thread in self.threads if (thread.role, thread.stream) == (role, stream))

    def wait_s(self, role: Role, stream: str) -> float | None:
        """Return how long the threads of a role waited for a CPU, for one stream; None where that is unknown."""
        return _total(thread.wait_s for thread in self.threads if thread.role == role and thread.stream == stream)


def _total(seconds: Iterator[float | None]) -> float | None:
    known = [value for value in seconds if value is not None]
    return sum(known) if known else None
