"""Guests under QEMU side by side: CPU time, deaths and broken links of each; also such loads inside a VM."""

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from netbench.errors import TestbedError
from netbench.hosts.base import run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.host_wrappers import ConfinedHost
from netbench.linux.changes import AddCgroup
from netbench.linux.machine import Machine
from netbench.model.topology_specs import CpuShares
from netbench.testbed.cpus import usable_cpus
from netbench.uut.base import ActiveGuest, Assignment, Site, bring_up
from netbench.uut.guest import Guest
from netbench.uut.raw import Raw, RawOptions
from netbench.vmm.container.cgroups import AddMemoryGroup, cgroup_procs_files
from netbench.vmm.qemu.options import QemuOptions
from netbench.vmm.qemu.qemu import Qemu
from tests.netns.yard import FRAMES, Yard, fresh_yard, groups

pytestmark = [pytest.mark.vm, pytest.mark.root]

BUSY_S = 3


@pytest.fixture
def yard():
    with fresh_yard() as yard:
        yield yard


def guest(**options) -> Guest:
    return Guest(Qemu(QemuOptions.model_validate({"forward": "route", **options})))


def pid_of(yard: Yard, name: str) -> int:
    return int(Path(f"/run/netbench/vm/{yard.run_id[-12:]}-uut-{name}/pid").read_text())


def allowed(pid: int) -> set[str]:
    """The CPUs that the threads of a process may run on, each kind once."""
    statuses = [(task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    assert len(statuses) > 2
    return {line.split()[1] for text in statuses for line in text.splitlines() if line.startswith("Cpus_allowed_list:")}


def cost_of_being_busy(uut: ActiveGuest) -> float:
    """CPU time in seconds that this machine has spent on a guest which computes for BUSY_S seconds of its own."""
    inside = uut.ready.inside
    assert inside is not None
    before, begin = uut.uut.read().cpu_s["host"], time.monotonic()
    done = inside.run(["timeout", str(BUSY_S), "sh", "-c", "while :; do :; done"], timeout_s=60)
    assert done.exit_code != 0, "it was stopped"
    return (uut.uut.read().cpu_s["host"] - before) / (time.monotonic() - begin)


def test_guests_each_with_its_own_part_of_the_machine_of_which_one_dies(yard):
    """One has a stream throughout; beside it comes one without streams and NICs, then one that is pinned."""
    first_cpu, last_cpu = usable_cpus()[0], usable_cpus()[-1]
    s1, _ = yard.paths
    with yard.uut(guest(), "g", (s1,), CpuShares((first_cpu,), weight=200)) as one:
        pids = [pid_of(yard, "g")]
        with yard.uut(guest(), "g.second", (), CpuShares((last_cpu,), weight=50, limit=0.2)) as other:
            pids.append(pid_of(yard, "g.second"))
            _have_their_shares(yard, pids, first_cpu, last_cpu)
            with ThreadPoolExecutor() as at_once:
                unbound, bound = at_once.map(cost_of_being_busy, (one, other))
            assert bound < 0.45, "a fifth of a CPU"
            assert unbound > 1.5 * bound
            assert other.uut.read().counters == (), "nothing of it is on a path"
            assert yard.forwarded(one, s1) == FRAMES
            own = {"host_cpus": str(last_cpu), "cpu_weight": "50", "cpu_limit": "20%"}
            assert own.items() <= other.ready.facts.items()
            assert "nic" not in other.ready.facts
        assert [place.name for place in groups()] == [f"nb-{yard.run_id[-12:]}-g"]
        _a_pinned_one_dies_and_leaves_it_alone(yard, one)
        _broken_links_are_noticed(yard, one)
    assert groups() == []
    assert [Path(f"/proc/{pid}").exists() for pid in pids] == [False, False]


def _have_their_shares(yard: Yard, pids: list[int], first_cpu: int, last_cpu: int) -> None:
    assert [allowed(pid) for pid in pids] == [{str(first_cpu)}, {str(last_cpu)}]
    places = groups()
    assert [place.name for place in places] == [f"nb-{yard.run_id[-12:]}-{name}" for name in ("g", "g.second")]
    assert [(place / "cgroup.procs").read_text().split() for place in places] == [[str(pid)] for pid in pids]
    output = [
        [(place / file).read_text().split() for file in ("cpu.weight", "cpu.max") if (place / file).exists()]
        or [(place / file).read_text().split() for file in ("cpu.shares", "cpu.cfs_quota_us")]
        for place in places
    ]
    assert output in (
        [[["2048"], ["-1"]], [["512"], ["20000"]]],
        [[["200"], ["max", "100000"]], [["50"], ["20000", "100000"]]],
    )


def _a_pinned_one_dies_and_leaves_it_alone(yard: Yard, first: ActiveGuest) -> None:
    """Its pins win over its shares."""
    first_cpu, last_cpu = usable_cpus()[0], usable_cpus()[-1]
    s1, s2 = yard.paths
    everywhere = CpuShares(tuple(usable_cpus()))
    pinned = guest(forward="bridge", pin={"vcpus": [[last_cpu]], "io": [first_cpu]})
    with yard.uut(pinned, "g.second", (s2,), everywhere) as second:
        assert allowed(pid_of(yard, "g.second")) == {str(first_cpu), str(last_cpu)}
        assert yard.forwarded(first, s1) == yard.forwarded(second, s2) == FRAMES
        inside = second.ready.inside
        assert inside is not None
        os.kill(pid_of(yard, "g.second"), signal.SIGKILL)
        with pytest.raises(TestbedError, match=r"guest g\.second: QEMU was killed by signal 9"):
            inside.run(["true"])
        assert yard.forwarded(second, s2) == 0
        assert yard.forwarded(first, s1) == FRAMES
    assert yard.forwarded(first, s1) == FRAMES
    first.uut.read()


def _broken_links_are_noticed(yard: Yard, active: ActiveGuest) -> None:
    """A tap that was taken out of its bridge, which it belongs to again afterwards, and one that went down."""
    uut = yard.hosts["uut"]
    (tap,) = json.loads(run_checked(uut, ["ip", "-json", "link", "show", "nb-ti-s1"]))
    for broken, mended, why in (
        (
            ("nb-ti-s1", "nomaster"),
            ("nb-ti-s1", "master", tap["master"]),
            "nb-ti-s1 is not attached to its bridge any more",
        ),
        (("nb-te-s1", "down"), ("nb-te-s1", "up"), "nb-te-s1 is down"),
    ):
        run_checked(uut, ["ip", "link", "set", *broken])
        with pytest.raises(TestbedError, match=f"guest g: {why}"):
            active.uut.read()
        run_checked(uut, ["ip", "link", "set", *mended])
        assert wait_until(lambda: reads(active), 20.0)


def reads(active: ActiveGuest) -> bool:
    """Whether its counters can be read."""
    try:
        active.uut.read()
    except TestbedError:
        return False
    return True


def test_a_load_inside_a_vm_is_bound_and_limited_there(lab):
    """A VM whose kernel has control groups of version 2."""
    host = lab.host("lab")
    kernel = Machine("lab", host)
    before = run_checked(host, ["cat", "/sys/fs/cgroup/cgroup.subtree_control"])
    uut = Raw(RawOptions())
    entitlement = CpuShares((1,), weight=50, limit=0.2)
    own = Assignment("u", (), entitlement, "uut", "nbt-lab-0123456789ab")
    active = bring_up(uut, Site(own, kernel, {"uut": lab.host("uut")}))
    group = "/sys/fs/cgroup/nb-0123456789ab-u"
    try:
        assert lab.host("uut").netns, "where /sys has no groups"
        output = run_checked(host, ["cat", f"{group}/cpu.weight", f"{group}/cpu.max"])
        assert output.split() == ["50", "20000", "100000"]
        burn = f"import time\nend = time.monotonic() + {BUSY_S}\nwhile time.monotonic() < end: pass\n"
        tell = "print(time.process_time(), open('/proc/self/cgroup').read(), open('/proc/self/status').read())"
        assert active.ready.inside
        done = active.ready.inside.run(["python3", "-I", "-S", "-c", burn + tell], timeout_s=60)
        assert done.exit_code == 0, done.stderr
        cpu_s, *words = done.stdout.split()
        assert float(cpu_s) / BUSY_S < 0.45, "a fifth of a CPU"
        assert "0::/nb-0123456789ab-u" in words
        assert words[words.index("Cpus_allowed_list:") + 1] == "1"
    finally:
        uut.destroy()
        assert kernel.undo() == []
    assert host.run(["test", "-d", group]).exit_code != 0
    assert run_checked(host, ["cat", "/sys/fs/cgroup/cgroup.subtree_control"]) == before


def test_the_memory_of_a_group_that_has_shares_is_limited_too(lab):
    """As that of a container's: in a VM whose kernel has control groups of version 2."""
    host = lab.host("lab")
    kernel = Machine("lab", host)
    switched = "/sys/fs/cgroup/cgroup.subtree_control"
    before = run_checked(host, ["cat", switched])
    shares, memory = "nb-0123456789ab-u", AddMemoryGroup("nb-0123456789ab-uut-u", 32, "nb-0123456789ab-u")
    kernel.make([AddCgroup(None, shares, 50), memory])
    try:
        (entry,) = cgroup_procs_files(host, f"/sys/fs/cgroup/{shares}/cgroup.procs", memory)
        confined = ConfinedHost(host, (), entry)
        assert (
            "0::/nb-0123456789ab-u/nb-0123456789ab-uut-u" in confined.run(["cat", "/proc/self/cgroup"]).stdout.split()
        )
        for where, mib, fits in ((host, 64, True), (confined, 8, True), (confined, 64, False)):
            taken = where.run(["python3", "-I", "-S", "-c", f"print(len(b'x' * ({mib} << 20)))"])
            assert (taken.stdout.strip() == str(mib << 20)) is fits
    finally:
        assert kernel.undo() == []
    assert "nb-0123456789ab" not in run_checked(host, ["ls", "/sys/fs/cgroup"])
    assert run_checked(host, ["cat", switched]) == before
