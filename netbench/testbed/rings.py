"""How a testbed's links deliver: which NICs of the UUT receive from a ring, in which kernel thread, or why not."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from netbench.errors import MachineGoneError, MissingError, TestbedError
from netbench.linux.changes import BindThread, Change, ReceiveByNapi
from netbench.linux.changes.receive import set_policy, threads_of
from netbench.linux.machine import Machine
from netbench.model.paths import Nic, StreamPath
from netbench.model.stream_paths import stream_paths
from netbench.model.tester import LinkIdentity
from netbench.model.topology import Topology
from netbench.model.traffic import NAPI_POLICY, NapiPolicy
from netbench.testbed.cpus import FRAMES_ONLY, CpuCompetition, cpu_plans, receiving_cpus
from netbench.trial.setup import KernelThread

CpusOf = Callable[[str | None], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Ring:
    """A NIC that is to receive a source's frames by NAPI, and the CPUs of its thread (none: there are too few).

    Without a thread (`in_thread` False), it receives in softirqs of the CPU that sends.
    """

    stream: str
    nic: Nic
    cpus: tuple[int, ...]
    in_thread: bool = True

    def moved(self, cpus: Sequence[int], policy: NapiPolicy) -> BindThread | None:
        """Return the change that runs its thread like a guest, on the CPUs (none: the usual ones) and in the policy.

        None where both are the usual ones. The thread itself is not named yet.
        """
        if not cpus and policy == "other":
            return None
        return replace(self.bind, cpus=tuple(cpus) or self.cpus, before=self.cpus, policy=policy)

    @property
    def switch_on(self) -> ReceiveByNapi:
        """The change that makes the NIC receive from the ring."""
        return ReceiveByNapi(self.nic.netns, self.nic.interface, self.in_thread)

    @property
    def bind(self) -> BindThread:
        """The change that binds its thread to its CPUs; the thread is not known yet."""
        return BindThread(self.nic.netns, f"napi/{self.nic.interface}-…", self.cpus)


def wanted_rings(
    topology: Topology,
    in_use: Sequence[StreamPath],
    cpus: CpusOf,
    competition: CpuCompetition = FRAMES_ONLY,
) -> list[Ring]:
    """Return the rings for the streams in use of a topology, on CPUs that `cpus` returns for the machine."""
    wanted = {path.name: path for path in stream_paths(topology) if path.receive != "inline"}
    return [
        Ring(path.name, ring.receiver[1], bound, in_thread=ring.receive == "napi")
        for path, bound in cpu_plans(in_use, cpus, receiving_cpus, competition)
        if (ring := wanted.get(path.name))
    ]


def planned_changes(rings: Sequence[Ring], machine: str | None) -> Iterator[Change]:
    """Return the changes on a machine for the rings, in order, for `--dry-run`."""
    for ring in rings:
        if ring.nic.machine != machine:
            continue
        if not ring.in_thread:
            yield ring.switch_on
        elif ring.cpus:
            yield from (ring.switch_on, ring.bind)


class Rings:
    """The rings of a testbed that is up; `found` has the actual state of each link, by stream."""

    def __init__(
        self,
        rings: Sequence[Ring],
        machines: Mapping[str | None, Machine],
        cpus_of_uuts: Mapping[str, Mapping[str, tuple[int, ...]]] = {},
        policies_of_uuts: Mapping[str, NapiPolicy] = {},
    ) -> None:
        """`cpus_of_uuts` has the CPUs of threads by UUT, then by stream, for UUTs with CPUs of their own.

        `policies_of_uuts` has the scheduling policy of all threads while a UUT is up, where it is not the default.
        """
        self._cpus_of_uuts = cpus_of_uuts
        self._policies_of_uuts = policies_of_uuts
        self._rings = rings
        self._machines = machines
        self.found: dict[str, LinkIdentity] = {}
        self._threads: dict[str, int] = {}
        self._policies: dict[str, NapiPolicy] = {}  # of the UUT that is up, by stream
        self._protected: set[str] = set()  # streams whose thread has precedence over processes now
        self._others: dict[str, frozenset[int]] = {}  # earlier threads, of other namespaces

    def switch_on(self) -> None:
        """Switch on a thread for each ring; `inline`, with the reason, where the kernel cannot."""
        for ring in self._rings:
            thread = self._threads.get(ring.stream)
            if ring.stream not in self.found or (thread and thread not in self._running(ring)):
                self.found[ring.stream] = self._switched_on(ring)

    def move(self, stream: str, cpus: Sequence[int], policy: NapiPolicy = "other") -> None:
        """Bind the thread of a stream to the CPUs of the guest that it forwards for (none: any), in this policy.

        The machine undoes this change. TestbedError or MissingError when the thread cannot be changed.
        """
        number, link = self._threads.get(stream), self.found.get(stream)
        if number is None or link is None:
            return
        (ring,) = (ring for ring in self._rings if ring.stream == stream)
        self.protect((), of=[stream])
        self._policies[stream] = policy
        if change := ring.moved(cpus, policy):
            self._machines[ring.nic.machine].make([replace(change, thread=link.thread, process=number)])

    def protect(self, streams: Collection[str], of: Collection[str] | None = None) -> None:
        """Give the threads of these streams precedence over all processes, and take it from the others (`of`: of some).

        Used while only the tester itself could delay them: delays by its sink must not count as slowness of the UUT.
        This change needs no undo: a thread ends with its interface. TestbedError where the kernel refuses.
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
        """Return the facts that explain the numbers of a UUT: the scheduling policy, if it is not Linux's default."""
        policy = self._policies_of_uuts.get(uut)
        return {NAPI_POLICY: f"SCHED_{policy.upper()}"} if policy and self._threads else {}

    def receiver(self, stream: str) -> KernelThread | None:
        """Return the thread that receives the frames of a stream, if it is a thread of this machine."""
        number, link = self._threads.get(stream), self.found.get(stream)
        if number is None or link is None or all(ring.nic.machine for ring in self._rings if ring.stream == stream):
            return None
        return KernelThread(link.thread, number)

    def received(self, path: StreamPath) -> StreamPath:
        """Return a path with the actual way its frames are received."""
        link = self.found.get(path.name)
        return replace(path, receive=link.receive if link else "inline")

    def _running(self, ring: Ring) -> dict[int, str]:
        return threads_of(self._machines[ring.nic.machine].host(), ring.nic.interface)

    def _switched_on(self, ring: Ring) -> LinkIdentity:
        if ring.in_thread and not ring.cpus:
            # A thread without its own CPU would take CPU time from a source, and sources from a thread.
            why = f"there are too few CPUs for sources and threads of their own, of {len(self._rings)} streams"
            return self._inline(ring, why)
        machine = self._machines[ring.nic.machine]
        others = self._others.setdefault(ring.stream, frozenset(self._running(ring)))
        try:
            machine.make([ring.switch_on])
        except MachineGoneError:
            raise
        except TestbedError as error:
            return self._inline(ring, str(error))
        if not ring.in_thread:
            return LinkIdentity("softirq")
        new = {number: name for number, name in self._running(ring).items() if number not in others}
        if len(new) != 1:
            return self._unbound(ring, "", f"{len(new)} threads may be it")
        ((number, name),) = new.items()
        self._threads[ring.stream] = number
        self._protected.discard(ring.stream)
        try:
            machine.make([replace(ring.bind, thread=name, process=number)])
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
