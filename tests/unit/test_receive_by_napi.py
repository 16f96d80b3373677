"""Links that receive like NICs: the kernel's settings, the receiving thread and its CPU, and the fallback."""

import pytest

from netbench.errors import MachineGoneError, TestbedError
from netbench.hosts.base import Completed
from netbench.linux.changes import ReceiveByNapi
from netbench.linux.machine import Machine
from netbench.model.stream_paths import stream_paths
from netbench.model.tester import LinkIdentity
from netbench.testbed.cpus import receiving_cpus
from netbench.testbed.rings import Rings, planned_changes, wanted_rings
from tests.unit.fakes import FakeHost
from tests.unit.inputs import topology, topology_in_vm

GRO = "generic-receive-offload"
THREADED = "/sys/class/net/nb-in1/threaded"
LINKS = [{**link.model_dump(mode="json"), "receive": "napi"} for link in topology().links]
LAB = topology(links=LINKS)


class Kernel(FakeHost):
    """A machine with one veth end: its features, and the threads that receive, by process id."""

    def __init__(self, **features: str) -> None:
        super().__init__(files={THREADED: "0"})
        self.features = {GRO: "off", "rx-gro-list": "on", "rx-udp-gro-forwarding": "off [fixed]"} | features
        self.threads = {7: "napi/nb-in1-9"}  # of the same name, in a foreign namespace
        self.bindable = 0
        self.output: list[str] = []

    def run(self, argv, *, stdin="", timeout_s=30.0):
        words = list(argv[4:] if argv[:3] == ["ip", "netns", "exec"] else argv)
        self.output.append(" ".join(words))
        text, code = "", 0
        match words:
            case ["ethtool", "-k", _]:
                text = "".join(f"{name}: {state}\n" for name, state in self.features.items())
            case ["ethtool", "-K", _, *pairs]:
                for name, state in zip(pairs[::2], pairs[1::2], strict=True):
                    key = GRO if name == "gro" else name
                    code |= "fixed" in self.features[key]
                    self.features[key] = self.features[key] if code else state
            case ["dd", target, *_]:
                if self.read(target.removeprefix("of=")) == "0":
                    self.threads[31] = "napi/nb-in1-10"
                self.write(target.removeprefix("of="), stdin)
            case ["sh", "-c", script, *_] if "grep" in script:
                text = "".join(f"/proc/{number}/comm:{name}\n" for number, name in self.threads.items())
            case ["taskset", *_]:
                code = self.bindable
        return Completed(tuple(argv), code, text, "no\n" if code else "")


def switched_on(kernel, cpus=(1,), lab=None):
    lab = lab or LAB
    rings, _ = started(kernel, cpus, lab)
    return rings, rings.received(stream_paths(lab)[0])


def started(kernel, cpus=(1,), lab=LAB, **uuts):
    """Rings that are switched on, and the machine; `uuts` are their CPUs and policies."""
    machine = Machine(None, kernel)
    rings = Rings(wanted_rings(lab, stream_paths(lab), lambda name: [0, *cpus]), {None: machine}, **uuts)
    rings.switch_on()
    return rings, machine


def test_the_thread_runs_where_a_guest_does_until_that_is_gone():
    kernel = Kernel()
    rings, machine = started(kernel, cpus_of_uuts={"one": {"s1": (0, 3)}})
    assert rings.found["s1"].details.endswith("; CPU 1; with UUT one CPUs 0,3")
    point, output = machine.point, len(kernel.output)
    rings.move("s1", ())
    assert kernel.output[output:] == []
    rings.move("s1", (0, 3))
    assert "taskset -p 9 31" in kernel.output[output:]
    assert machine.undo(to=point) == []
    assert kernel.output[-1] == "taskset -p 2 31"


def test_the_thread_is_known_to_trials_where_it_is_one_of_this_machine():
    kernel = Kernel()
    rings, _ = switched_on(kernel)
    assert (found := rings.receiver("s1")) is not None
    assert (found.name, found.process) == (rings.found["s1"].thread, 31)
    assert rings.receiver("s2") is None


def test_the_thread_has_the_policy_of_the_uut_until_the_uut_is_gone():
    kernel = Kernel()
    rings, machine = started(kernel, policies_of_uuts={"one": "rr"})
    assert rings.found["s1"].details.endswith("; CPU 1; with UUT one SCHED_RR")
    assert not any("chrt" in command for command in kernel.output)  # the default is Linux's own
    point, before = machine.point, len(kernel.output)
    rings.move("s1", (), "rr")
    assert [command.split('"')[0] for command in kernel.output[before:]] == ["taskset -p 2 31", "sh -c chrt --rr -p 1 "]
    assert machine.undo(to=point) == []
    assert [command.split('"')[0] for command in kernel.output[-2:]] == ["taskset -p 2 31", "sh -c chrt --other -p 0 "]


def test_the_thread_precedes_the_testers_sink_unless_the_uut_has_a_policy_of_its_own():
    kernel = Kernel()
    rings, _ = started(kernel)

    def changes(streams):
        before = len(kernel.output)
        rings.protect(streams)
        return [command.split('"')[0] for command in kernel.output[before:]]

    assert changes(["s1"]) == ["sh -c chrt --rr -p 1 "]
    assert changes(["s1"]) == []
    assert changes([]) == ["sh -c chrt --other -p 0 "]
    assert changes(["s1"]) == ["sh -c chrt --rr -p 1 "]
    before = len(kernel.output)
    rings.move("s1", (), "fifo")
    assert [command.split('"')[0] for command in kernel.output[before:]] == [
        "sh -c chrt --other -p 0 ",
        "taskset -p 2 31",
        "sh -c chrt --fifo -p 1 ",
    ]
    assert changes(["s1"]) == changes([]) == []


def test_the_thread_of_this_interface_is_bound_and_nothing_is_merged():
    kernel = Kernel()
    rings, path = switched_on(kernel)
    assert path.receive == "napi"
    assert rings.found == {"s1": LinkIdentity("napi", cpus=(1,))}
    assert rings.found["s1"].details == "napi; kernel thread napi/nb-in1-10; CPU 1"
    assert (kernel.features[GRO], kernel.features["rx-gro-list"], kernel.files[THREADED]) == ("on", "off", "1")
    assert "taskset -p 2 31" in kernel.output
    output = len(kernel.output)
    rings.switch_on()  # nothing has changed: it only checks
    assert len(kernel.output) == output + 1
    kernel.threads = {7: "napi/nb-in1-9", 40: "napi/nb-in1-11"}  # the link was down
    rings.switch_on()
    assert "taskset -p 2 40" in kernel.output
    kernel.threads = {7: "napi/nb-in1-9", 50: "napi/nb-in1-12", 51: "napi/nb-in1-13"}  # whose is which?
    rings.switch_on()
    assert rings.found["s1"].remark.startswith("The ring of nb-lab-uut/nb-in1 may lose frames")


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (Kernel(**{GRO: "off [fixed]"}), "failed with exit code 1"),
        (Kernel(**{"rx-gro-list": "on [fixed]"}), "rx-gro-list did not change"),
        (Kernel(), "No such file or directory"),
    ],
)
def test_where_the_kernel_cannot_it_receives_inline_and_reports_so(kernel, why):
    if "such file" in why:
        kernel.files.clear()
    rings, path = switched_on(kernel)
    assert path.receive == "inline"
    assert "Frames come in inline on nb-lab-uut/nb-in1, not by NAPI" in rings.found["s1"].remark
    assert why in rings.found["s1"].remark
    assert kernel.features[GRO].startswith("off")


def test_with_too_few_cpus_it_receives_inline_and_reports_so():
    kernel = Kernel()
    rings, path = switched_on(kernel, cpus=())
    assert (path.receive, kernel.features[GRO]) == ("inline", "off")
    assert "too few CPUs for sources and threads of their own, of 1 streams" in rings.found["s1"].remark


def test_a_thread_that_cannot_be_bound_receives_all_the_same():
    kernel = Kernel()
    kernel.bindable = 1
    rings, path = switched_on(kernel)
    assert (path.receive, rings.found["s1"].cpus) == ("napi", ())
    assert "may lose frames" in rings.found["s1"].remark


def test_a_machine_that_is_gone_is_nobodys_fallback(monkeypatch):
    def gone(self, changes):
        raise MachineGoneError("it is gone")

    monkeypatch.setattr(Machine, "make", gone)
    with pytest.raises(MachineGoneError):
        switched_on(Kernel())


def test_links_that_receive_inline_are_left_alone():
    kernel = Kernel()
    rings, path = switched_on(kernel, lab=topology())
    assert (path.receive, rings.found, kernel.output) == ("inline", {}, [])


@pytest.mark.parametrize(
    ("streams", "cpus", "found"),
    [
        (1, [0, 1], [(1,)]),
        (1, [0, 1, 2], [(2,)]),
        (2, [0, 1, 2], [(2,), (2,)]),
        (2, [0, 1, 2, 3], [(2,), (3,)]),
        (2, range(8), [(4,), (5,)]),
        (3, [0, 1], [(), (), ()]),
    ],
)
def test_the_uut_has_cpus_of_its_own_as_far_as_there_are_any(streams, cpus, found):
    assert receiving_cpus(streams, cpus) == found


def test_a_dry_run_shows_what_would_be_done_where():
    lab = topology_in_vm(links=LINKS)
    rings = wanted_rings(lab, stream_paths(lab), lambda machine: [0, 1])
    assert not list(planned_changes(rings, None))
    assert [change.command for change in planned_changes(rings, "lab")] == [
        "ip netns exec nb-lab-uut ethtool -K nb-in1 rx-gro-list off rx-udp-gro-forwarding off gro on && "
        f"ip netns exec nb-lab-uut sh -c 'echo 1 >{THREADED}'",
        "taskset -p 2 PID  # the thread napi/nb-in1-… of nb-lab-uut",
    ]
    assert not list(planned_changes(wanted_rings(lab, stream_paths(lab), lambda machine: [0]), "lab"))
    assert wanted_rings(lab, [], lambda machine: [0, 1]) == []


def test_a_ring_without_a_thread_needs_no_cpu():
    lab = topology(links=[{**link, "receive": "softirq"} for link in LINKS])
    kernel = Kernel()
    rings, path = switched_on(kernel, cpus=(), lab=lab)
    assert (path.receive, rings.found) == ("softirq", {"s1": LinkIdentity("softirq")})
    assert (kernel.features[GRO], kernel.files[THREADED], rings.receiver("s1")) == ("on", "0", None)
    (change,) = planned_changes(wanted_rings(lab, stream_paths(lab), lambda machine: [0]), None)
    assert change.command.endswith("gro on")


def test_what_fails_half_way_raises_and_is_taken_back():
    kernel = Kernel()
    kernel.files.clear()
    with pytest.raises(TestbedError):
        ReceiveByNapi(None, "nb-in1").make(kernel)
    assert kernel.features[GRO] == "off"
