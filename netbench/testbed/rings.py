"""How a testbed's links deliver: which the UUT receives from a ring, by which kernel thread, and where it cannot."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from netbench.errors import MachineGoneError, MissingError, TestbedError
from netbench.linux.changes import BindThread, Change, ReceiveByNapi
from netbench.linux.changes.napi import set_policy, threads_of
from netbench.linux.machine import Machine
from netbench.model.paths import Nic, StreamPath, stream_paths
from netbench.model.tester import LinkIdentity
from netbench.model.topology import Topology
from netbench.model.traffic import NAPI_POLICY, NapiPolicy
from netbench.testbed.cpus import cpu_plans, receiving_cpus
from netbench.trial.setup import KernelThread

CpusOf = Callable[[str | None], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Ring:
    """A NIC that is to receive by NAPI what a source sends, and the CPUs for its thread (none: there are too few)."""

    stream: str
    nic: Nic
    cpus: tuple[int, ...]

    def moved(self, cpus: Sequence[int], policy: NapiPolicy) -> BindThread | None:
        """The change that has its thread run like a guest, on its CPUs (none: the usual ones) and in this policy.

        None where both are the usual ones. The thread itself is not named yet.
        """
        if not cpus and policy == "other":
            return None
        return replace(self.changes[1], cpus=tuple(cpus) or self.cpus, before=self.cpus, policy=policy)

    @property
    def changes(self) -> tuple[ReceiveByNapi, BindThread]:
        """What makes it so, its thread not known yet."""
        interface = self.nic.interface
        return ReceiveByNapi(self.nic.netns, interface), BindThread(self.nic.netns, f"napi/{interface}-…", self.cpus)


def wanted_rings(topology: Topology, in_use: Sequence[StreamPath], cpus: CpusOf) -> list[Ring]:
    """Those of the streams in use of a topology, out of the CPUs that `cpus` says a machine has."""
    wanted = {path.name: path.receiver[1] for path in stream_paths(topology) if path.receive == "napi"}
    planned = cpu_plans(in_use, cpus, receiving_cpus)
    return [Ring(path.name, nic, found) for path, found in planned if (nic := wanted.get(path.name))]


def planned_changes(rings: Sequence[Ring], machine: str | None) -> Iterator[Change]:
    """What is changed on a machine for them, in order, for `--dry-run`."""
    for ring in rings:
        if ring.nic.machine == machine and ring.cpus:
            yield from ring.changes


class Rings:
    """The rings of a testbed that is up, as they really are; `found` is by stream."""

    def __init__(
        self,
        rings: Sequence[Ring],
        machines: Mapping[str | None, Machine],
        cpus_of_uuts: Mapping[str, Mapping[str, tuple[int, ...]]] = {},
        policies_of_uuts: Mapping[str, NapiPolicy] = {},
    ) -> None:
        """`cpus_of_uuts` has the CPUs of threads while a UUT is up that has its own, by UUT, then by stream.

        `policies_of_uuts` has the scheduling policy of all threads while a UUT is up, where it is not the default.
        """
        self._cpus_of_uuts = cpus_of_uuts
        self._policies_of_uuts = policies_of_uuts
        self._rings = rings
        self._machines = machines
        self.found: dict[str, LinkIdentity] = {}
        self._threads: dict[str, int] = {}
        self._policies: dict[str, NapiPolicy] = {}  # of the UUT that is up, by stream
        self._protected: set[str] = set()  # streams whose thread precedes processes just now
        self._others: dict[str, frozenset[int]] = {}  # threads that were there before, of other namespaces

    def switch_on(self) -> None:
        """Have each received from, by a thread of its own; `inline`, with why, where the kernel cannot."""
        for ring in self._rings:
            thread = self._threads.get(ring.stream)
            if ring.stream not in self.found or (thread and thread not in self._running(ring)):
                self.found[ring.stream] = self._switched_on(ring)

    def move(self, stream: str, cpus: Sequence[int], policy: NapiPolicy = "other") -> None:
        """Bind the thread of a stream to the CPUs of the guest that it forwards for (none: any), in this policy.

        A change to the machine, which undoes it. TestbedError or MissingError when the thread cannot be changed.
        """
        number, found = self._threads.get(stream), self.found.get(stream)
        if number is None or found is None:
            return
        (ring,) = (ring for ring in self._rings if ring.stream == stream)
        self.protect((), of=[stream])
        self._policies[stream] = policy
        if change := ring.moved(cpus, policy):
            self._machines[ring.nic.machine].make([replace(change, thread=found.thread, process=number)])

    def protect(self, streams: Collection[str], of: Collection[str] | None = None) -> None:
        """Have the threads of these streams precede all processes, and those of the others not (of all, or some).

        Used while nothing but the tester itself could delay them: its sink is not to be taken for the UUT's slowness.
        It is no change to undo: a thread ends with its interface. TestbedError where the kernel refuses.
        """
        for ring in self._rings:
            stream, number = ring.stream, self._threads.get(ring.stream)
            own = self._policies.get(stream, "other")
            if number is None or own != "other" or (of is not None and stream not in of):
                continue
            if (stream in streams) != (stream in self._protected):
                policy: NapiPolicy = "rr" if stream in streams else "other"
                set_policy(self._machines[ring.nic.machine].host(), str(number), policy)
                self._protected ^= {stream}

    def facts(self, uut: str) -> dict[str, str]:
        """The facts about a UUT that explain its numbers: the scheduling policy, where it is not Linux's default."""
        policy = self._policies_of_uuts.get(uut)
        return {NAPI_POLICY: f"SCHED_{policy.upper()}"} if policy and self._threads else {}

    def receiver(self, stream: str) -> KernelThread | None:
        """The thread that takes in the frames of a stream, where that is one of this machine."""
        number, found = self._threads.get(stream), self.found.get(stream)
        if number is None or found is None or all(ring.nic.machine for ring in self._rings if ring.stream == stream):
            return None
        return KernelThread(found.thread, number)

    def received(self, path: StreamPath) -> StreamPath:
        """A path with how its frames really come in."""
        found = self.found.get(path.name)
        return replace(path, receive=found.receive if found else "inline")

    def _running(self, ring: Ring) -> dict[int, str]:
        return threads_of(self._machines[ring.nic.machine].host(), ring.nic.interface)

    def _switched_on(self, ring: Ring) -> LinkIdentity:
        if not ring.cpus:
            # A thread without a CPU of its own takes that of a source, and sources that of a thread.
            why = f"there are too few CPUs for sources and threads of their own, of {len(self._rings)} streams"
            return self._inline(ring, why)
        machine = self._machines[ring.nic.machine]
        receives, binds = ring.changes
        others = self._others.setdefault(ring.stream, frozenset(self._running(ring)))
        try:
            machine.make([receives])
        except MachineGoneError:
            raise
        except TestbedError as error:
            return self._inline(ring, str(error))
        new = {number: name for number, name in self._running(ring).items() if number not in others}
        if len(new) != 1:
            return self._unbound(ring, "", f"{len(new)} threads may be it")
        ((number, name),) = new.items()
        self._threads[ring.stream] = number
        self._protected.discard(ring.stream)
        try:
            machine.make([replace(binds, thread=name, process=number)])
        except MachineGoneError:
            raise
        except (TestbedError, MissingError) as error:
            return self._unbound(ring, name, str(error))
        uuts = {uut: cpus[ring.stream] for uut, cpus in self._cpus_of_uuts.items() if ring.stream in cpus}
        return LinkIdentity("napi", name, ring.cpus, cpus_of_uuts=uuts, policies_of_uuts=self._policies_of_uuts)

    def _inline(self, ring: Ring, why: str) -> LinkIdentity:
        text = f"Frames come in inline on {ring.nic.place}, not by NAPI, so that overload slows the source: {why}."
        return LinkIdentity("inline", remark=text)

    def _unbound(self, ring: Ring, thread: str, why: str) -> LinkIdentity:
        text = (
            f"The ring of {ring.nic.place} may lose frames: the kernel thread that empties it is not bound to a CPU, "
            f"because {why}."
        )
        return LinkIdentity("napi", thread, (), text)
