"""Two VMs with cables between their NICs, as in the topology lab-cabled: the tester and the device under test."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from netbench.linux.machine import Machine
from netbench.model.scenario import VICTIM
from netbench.model.stream_paths import stream_paths
from netbench.model.topology import Topology
from netbench.model.trial import TrialResult
from netbench.testbed.bring_up import base_changes, cable_ends
from netbench.testbed.testbed import Testbed
from netbench.testbed.virtual_machines import VmMachine, running_vms
from netbench.trial.run import run_trial
from netbench.trial.sources_and_sinks import Recording
from tests.unit.inputs import planned_trial, profile
from tests.vm.lab import PATIENT, UnmarkedHost

BOX, DUT = "box", "dut"
Measure = Callable[..., TrialResult]


class Cabled:
    """The two VMs. The device is set up; the ports of the other are lent to a namespace by the test.

    `found` is how the ports were before.
    """

    found = ""

    def __init__(self, topology: Topology, box: VmMachine, dut: VmMachine) -> None:
        self.topology = topology
        self.box = box
        self.dut = dut
        self._here = Machine(None, UnmarkedHost("here", "nbt-cabled"))

    def do(self, command: str) -> str:
        """The output of a command in the namespace of the tester."""
        done = self.box.host(self.topology.netns("tester"), "tester").run(["sh", "-c", command], timeout_s=60.0)
        assert done.exit_code == 0, done.stderr
        return done.stdout

    def on_box(self, command: str) -> str:
        """The output of a command outside of that namespace, where the ports belong."""
        done = self.box.host().run(["sh", "-c", command], timeout_s=60.0)
        assert done.exit_code in (0, 1), done.stderr
        return done.stdout

    def transmitted(self) -> int:
        """Frames that have left by eth1."""
        return int(self.do("cat /sys/class/net/eth1/statistics/tx_packets"))

    @contextmanager
    def setup(self, generator: object, *streams: str) -> Iterator[Measure]:
        """A function that runs a trial of streams with these sources: measure(load, frame_size, **profile)."""
        paths = [path for path in stream_paths(self.topology) if path.name in streams]
        machines = {None: self._here, BOX: self.box, DUT: self.dut}
        hosts = {name: self.box.host(self.topology.netns(name), name) for name in ("box", "tester")}
        testbed = Testbed(self.topology, "nbt-cabled", machines, hosts, tuple(paths), profile(generator=generator))
        (spec,) = self.topology.uuts
        numbers = count()
        with tempfile.TemporaryDirectory(prefix="nbt-") as directory:
            try:
                testbed.open_endpoints()
                with testbed.uut(spec) as unit:

                    def measure(load: str, frame_size: int = 64, **more: object) -> TrialResult:
                        asked = profile(**{**PATIENT, "loads": load, "frame_sizes": frame_size, **more})
                        wanted = planned_trial(self.topology, asked, streams, index=next(numbers), uut=spec.name)
                        recording = Recording.as_wanted(asked, Path(directory))
                        return run_trial(testbed.setup({VICTIM: unit}), wanted, recording, 1)

                    yield measure
            finally:
                testbed.close_endpoints()


@contextmanager
def cabled(topology: Topology) -> Iterator[Cabled]:
    """Both VMs, from their start to their end."""
    with ExitStack() as stack:
        directories = {
            name: Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nbt-"))) for name in (BOX, DUT)
        }
        here, cables = UnmarkedHost("here", "nbt-cabled"), cable_ends(topology, directories)
        vms = stack.enter_context(running_vms(topology, here, directories, cables))
        vms[DUT].make(base_changes(topology, DUT))
        yield Cabled(topology, vms[BOX], vms[DUT])
