"""Trials in a VM that tests can inspect from inside, with two streams from two namespaces."""

import re
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.local import MARK, LocalHost
from netbench.images.build import ImageOrder, build
from netbench.images.library import cache_directory
from netbench.linux.machine import Machine
from netbench.model.host_spec import HostSpec
from netbench.model.scenario import VICTIM
from netbench.model.stream_paths import stream_paths
from netbench.model.topology import Topology
from netbench.model.trial import TrialResult
from netbench.testbed.bring_up import base_changes, source_changes
from netbench.testbed.testbed import Testbed
from netbench.testbed.virtual_machines import running_vm
from netbench.trial.run import run_trial
from netbench.trial.sources_and_sinks import Recording
from tests.netns.yard import Yard, processes
from tests.unit.inputs import planned_trial, profile, topology

TOPOLOGY = Topology.model_validate(
    {
        "name": "inside",
        "hosts": {
            "lab": {"kind": "vm", "cpus": 2, "memory": "512M"},
            **{name: {"kind": "netns", "on": "lab"} for name in ("source1", "source2", "uut", "sink")},
        },
        "links": [
            {"ends": ends, "rate": "1Gbit/s"}
            for n in (1, 2)
            for ends in ([f"source{n}/tx{n}", f"uut/in{n}"], [f"uut/out{n}", f"sink/rx{n}"])
        ],
        "streams": [
            {
                "name": f"s{n}",
                "source": f"source{n}/tx{n}",
                "ingress": f"uut/in{n}",
                "egress": f"uut/out{n}",
                "sink": f"sink/rx{n}",
            }
            for n in (1, 2)
        ],
        "uuts": [
            {"name": "bridge", "kind": "raw", "forward": "bridge"},
            {"name": "drops-7-of-100", "kind": "reference", "forward": "route", "drop": {"k": 7, "n": 100}},
        ],
    }
)
# Tests that count frames do not depend on how evenly this machine sends.
PATIENT = {"tolerance": "100%", "max_lateness": "1min", "duration": "200ms"}


@dataclass(frozen=True)
class Frame:
    """One frame of a stream, as captured."""

    sequence: int
    size: int  # bytes with FCS
    src_port: int


@dataclass(frozen=True)
class Measured:
    """A trial, and the stream's frames in the capture, in the order of the file."""

    result: TrialResult
    frames: dict[str, list[Frame]]  # of plain packets
    captures: dict[str, Path]

    @property
    def sequences(self) -> list[int]:
        """The numbers of the frames of s1."""
        return [frame.sequence for frame in self.frames["s1"]]


Measure = Callable[..., Measured]


class UnmarkedHost(LocalHost):
    """This machine, for a guest that several tests share, and that none of them must report as left behind."""

    def spawn(self, argv):
        return super().spawn(["env", "--unset", MARK, *argv])


class Lab:
    """The VM, and queries of tests inside it."""

    def __init__(self, vm: Machine) -> None:
        self._vm = vm

    def host(self, name: str) -> Host:
        """A namespace of the topology."""
        return self._vm.host(TOPOLOGY.netns(name), name)

    def do(self, host: str, command: str) -> str:
        """The output of a command that has to succeed."""
        return run_checked(self.host(host), command.split())

    def transmitted(self, stream: int = 1) -> int:
        """Frames that the kernel has counted at the source's NIC."""
        return int(self.do(f"source{stream}", f"cat /sys/class/net/nb-tx{stream}/statistics/tx_packets"))

    def so_far(self, stream: int = 1) -> int:
        """Frames that pktgen has counted in the last run, on all threads."""
        host, interface = f"source{stream}", f"nb-tx{stream}"
        names = [name for name in self.do(host, "ls /proc/net/pktgen").split() if name.startswith(f"{interface}@")]
        found = [
            re.search(r"pkts-sofar: (\d+) ", self.do(host, f"cat /proc/net/pktgen/{name}")) for name in sorted(names)
        ]
        return sum(int(match[1]) for match in found if match)

    @contextmanager
    def setup(
        self, captures: Path, uut: str = "bridge", streams: int = 1, generator: object = "pktgen", packet: object = None
    ) -> Iterator[Measure]:
        """A function that runs a trial with this UUT and these sources: measure(load, frame_size, **profile).

        The NICs of the sources are prepared for `packet`.
        """
        paths = stream_paths(TOPOLOGY)[:streams]
        hosts = {name: self.host(name) for name in TOPOLOGY.hosts}
        usual = profile(generator=generator, packet=packet or "plain")
        testbed = Testbed(TOPOLOGY, "nbt-lab", {"lab": self._vm}, hosts, paths, usual)
        spec = next(spec for spec in TOPOLOGY.uuts if spec.name == uut)
        numbers = count()
        try:
            self._vm.make(source_changes(usual, paths, "lab"))
            testbed.open_endpoints()
            with testbed.uut(spec) as unit:

                def measure(load: str, frame_size: int = 64, **more: object) -> Measured:
                    names = tuple(path.name for path in paths)
                    asked = profile(**{**PATIENT, "loads": load, "frame_sizes": frame_size, **more})
                    wanted = planned_trial(TOPOLOGY, asked, names, index=next(numbers), uut=uut)
                    setup = replace(testbed.setup({VICTIM: unit}), packets=asked.packets)
                    result = run_trial(setup, wanted, Recording.as_wanted(asked, captures), 1)
                    files = {name: captures / f"trial-{wanted.index:06d}-{name}.pcap" for name in names}
                    return Measured(result, {name: frames_in(file) for name, file in files.items()}, files)

                yield measure
        finally:
            testbed.close_endpoints()


def build_or_skip(image: str) -> None:
    """Build the image of a VM if it is missing; skip the tests where that is not possible."""
    try:
        build(ImageOrder(image, cache_directory()), lambda line: None)
    except MissingError as error:
        pytest.skip(f"the image {image} cannot be had: {error}")


@contextmanager
def yards_in_vm(host: HostSpec) -> Iterator[Callable[[], Yard]]:
    """A function that returns a yard in a VM: always the same one, until that VM hangs; then a new one."""
    with ExitStack() as stack:
        # Before the first test records the state of this machine.
        up = [stack.enter_context(fresh_yard_in_vm(host))]

        def yard() -> Yard:
            if not answers(up[0]):
                hangs = TestbedError("it hangs")
                with suppress(TestbedError):  # without undoing anything in it, which would take for ever
                    stack.__exit__(type(hangs), hangs, None)
                up[0] = stack.enter_context(fresh_yard_in_vm(host))
            return up[0]

        yield yard


def answers(yard: Yard) -> bool:
    """Whether the machine of a yard responds, also about links: a CPU that hangs may have locked them."""
    try:
        run_checked(yard.machine.host(), ["ip", "link"])
        yard.running()
    except TestbedError:
        return False
    return True


@contextmanager
def fresh_yard_in_vm(host: HostSpec, name: str = "nbt-side") -> Iterator[Yard]:
    """A yard in a VM, which ends with it; it takes as long to come up as that VM does."""
    there = topology(2, name=name)
    wanted = there.model_copy(update={"hosts": {"lab": host, **there.hosts}}).on("lab")
    assert host.vm is not None
    # A new directory, so that one left by an earlier, killed run does no harm.
    with (
        tempfile.TemporaryDirectory(prefix="nbt-") as directory,
        running_vm("lab", host.vm, UnmarkedHost("local", "nbt"), Path(directory)) as machine,
    ):
        machine.make(base_changes(wanted, "lab"))
        hosts = {role: machine.host(wanted.netns(role), role) for role in ("source", "uut", "sink")}
        always_there = frozenset(words for _, words in processes(machine.host()))
        yield Yard("nbt", hosts, machine, stream_paths(wanted), always_there)
        assert machine.undo() == []


def frames_in(capture: Path) -> list[Frame]:
    """The frames with pktgen's header, read without netbench's code; frames that flush the capture are not IPv4."""
    data, at, found = capture.read_bytes(), 24, []
    while at < len(data):
        _, _, captured, original = struct.unpack_from("<4I", data, at)
        frame = data[at + 16 : at + 16 + captured]
        at += 16 + captured
        if frame[12:14] == b"\x08\x00":
            (port,) = struct.unpack_from("!H", frame, 34)
            magic, sequence = struct.unpack_from("!2I", frame, 42)
            assert magic == 0xBE9BE955
            found.append(Frame(sequence, original + 4, port))
    return found
