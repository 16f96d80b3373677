"""Several UUTs of this machine's own kernel side by side in one namespace, and the CPU time of their loads."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import get_args

import pytest

from netbench.hosts.base import run_checked
from netbench.hosts.ssh import free_port
from netbench.linux.changes import SetUp
from netbench.model.topology_specs import CpuShares
from netbench.testbed.cpus import usable_cpus
from netbench.uut.base import ActiveGuest
from netbench.uut.forwarder import Forwarder, ForwarderOptions
from netbench.uut.raw import Raw, RawOptions
from netbench.uut.reference import At, DropRule, Limit, Reference, ReferenceOptions
from tests.commands import netbench
from tests.netns.watching import wait_for
from tests.netns.yard import FRAMES, assert_declared, fresh_yard, groups

pytestmark = pytest.mark.root


@pytest.fixture
def yard():
    with fresh_yard() as yard:
        yield yard


def raw(forward: str) -> Raw:
    return Raw(RawOptions.model_validate({"forward": forward}))


def reference(forward: str, k: int, n: int = 100) -> Reference:
    return Reference(ReferenceOptions.model_validate({"forward": forward, "drop": DropRule(k=k, n=n)}))


def dropped(uut: ActiveGuest) -> dict[str, int | None]:
    return {reading.stream: reading.frames for reading in uut.uut.read().counters}


@pytest.mark.parametrize(
    "uut",
    [
        raw("bridge"),
        *(Reference(ReferenceOptions(drop=DropRule(k=1, n=9, at=at))) for at in get_args(At)),
        Reference(ReferenceOptions(forward="route", limit=Limit(fps=1))),
        Forwarder(ForwarderOptions()),
    ],
    ids=["raw", "at ingress", "forwarding", "at egress", "limit", "forwarder"],
)
def test_every_counter_is_read_at_a_point_that_is_declared(yard, uut):
    """As for guests (VmmContract)."""
    for_one = yard.paths[:1]
    with yard.uut(uut, "u", for_one) as active:
        assert_declared(active, *for_one)


@pytest.mark.parametrize(("one", "other"), [("bridge", "bridge"), ("route", "route"), ("route", "bridge")])
def test_the_second_to_come_takes_nothing_from_the_first_when_it_goes(yard, one, other):
    """Both need the same kernel settings; only the first has changed them."""
    s1, s2 = yard.paths
    with yard.uut(raw(one), "u", (s1,)) as first:
        assert yard.forwarded(first, s1) == FRAMES
        with yard.uut(raw(other), "u.second", (s2,)) as second:
            assert yard.forwarded(first, s1) == yard.forwarded(second, s2) == FRAMES
        assert yard.forwarded(first, s1) == FRAMES
        assert yard.forwarded(second, s2) == 0


@pytest.mark.parametrize(("forward", "name"), [("bridge", "u"), ("route", "9.Lives_-"), ("bridge", "u" * 40)])
def test_drops_land_on_the_guest_that_makes_them(yard, forward, name):
    s1, s2 = yard.paths
    beside = f"{name}.{'n' * 12}"
    with (
        yard.uut(reference(forward, 7), name, (s1,)) as first,
        yard.uut(reference(forward, 30), beside, (s2,)) as second,
    ):
        tables = run_checked(yard.hosts["uut"], ["nft", "list", "tables"]).split()
        assert {f"nb-{name}", f"nb-{beside}"} <= set(tables)
        assert yard.forwarded(first, s1) == FRAMES - 7
        assert yard.forwarded(second, s2) == FRAMES - 30
        assert (dropped(first), dropped(second)) == ({"s1": 7}, {"s2": 30})
        second.uut.reset()
        assert (dropped(first), dropped(second)) == ({"s1": 7}, {"s2": 0})
    assert "nb-" not in run_checked(yard.hosts["uut"], ["nft", "list", "tables"])


BURN_S = 1.0
BURN = """
import sys, time
begin, end = map(float, sys.argv[1:])
time.sleep(max(0, begin - time.monotonic()))
before = time.process_time()
while time.monotonic() < end:
    pass
print(time.process_time() - before, open("/proc/self/cgroup").read(), open("/proc/self/status").read())
"""


@dataclass(frozen=True)
class Burnt:
    """The CPU time, control groups and CPUs of a process that was busy for BURN_S."""

    cpu_s: float
    groups: str
    cpus: str


def burn(uut: ActiveGuest, begin: float) -> Burnt:
    """Run a busy loop in a UUT from a time of CLOCK_MONOTONIC on, late enough for Python to have started."""
    inside = uut.ready.inside
    assert inside is not None
    done = inside.run([sys.executable, "-c", BURN, str(begin), str(begin + BURN_S)])
    assert done.exit_code == 0, done.stderr
    cpu_s, _, rest = done.stdout.partition(" ")
    allowed = next(line.split()[1] for line in rest.splitlines() if line.startswith("Cpus_allowed_list:"))
    return Burnt(float(cpu_s), rest, allowed)


def test_a_load_is_bound_weighed_and_limited_without_streams_too(yard):
    cpu = usable_cpus()[-1]
    alike = CpuShares((cpu,), weight=100)
    with (
        yard.uut(raw("route"), "u", yard.paths[:1], alike) as heavy,
        yard.uut(raw("route"), "u.light", (), CpuShares((cpu,), weight=10)) as light,
        yard.uut(raw("route"), "u.limited", (), CpuShares(limit=0.2)) as limited,
    ):
        run = yard.run_id[-12:]
        assert [group.name for group in groups()] == [f"nb-{run}-{name}" for name in ("u", "u.light", "u.limited")]
        begin = time.monotonic() + 1.0
        with ThreadPoolExecutor() as at_once:
            one, other = at_once.map(lambda uut: burn(uut, begin), (heavy, light))
        assert one.cpus == other.cpus == str(cpu)
        assert (f"nb-{run}-u\n" in one.groups, f"nb-{run}-u.light\n" in other.groups) == (True, True)
        assert one.cpu_s > 3 * other.cpu_s, (one.cpu_s, other.cpu_s)
        alone = burn(limited, time.monotonic() + 1.0)
        assert 0.02 < alone.cpu_s / BURN_S < 0.45, "a fifth of a CPU"
        assert alone.cpus == "-".join(map(str, sorted({usable_cpus()[0], usable_cpus()[-1]})))
    assert groups() == []


def test_a_group_is_removed_once_its_last_process_has_ended(yard):
    with yard.uut(raw("route"), "u", (), CpuShares(weight=50)) as uut:
        inside = uut.ready.inside
        assert inside is not None
        inside.run(["sh", "-c", "sleep 0.7 </dev/null >/dev/null 2>&1 &"])
        assert len(groups()) == 1
    assert groups() == []


LISTEN = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    input()
"""


def test_ports_for_guests_of_one_namespace_are_different(yard):
    """The first guest already listens when the second one gets its port."""
    host = yard.hosts["uut"]
    yard.machine.make([SetUp(host.netns, "lo")])
    run_checked(host, ["sysctl", "-w", "net.ipv4.ip_local_port_range=40000 40001"])
    first = host.spawn([sys.executable, "-c", LISTEN])
    assert first.stdout is not None
    taken = int(first.stdout.readline())
    assert {free_port(host) for _ in range(20)} == {40000, 40001} - {taken}
    first.communicate("", timeout=10)


def hold() -> None:
    """Keep UUTs with busy loads running until killed."""
    with fresh_yard() as yard:
        entitled = CpuShares((usable_cpus()[0],), weight=50, limit=0.5)
        with yard.uut(raw("bridge"), "u", yard.paths[:1], entitled) as uut, yard.uut(reference("bridge", 1), "u.n"):
            inside = uut.ready.inside
            assert inside is not None
            inside.run(["sh", "-c", "sleep 600 </dev/null >/dev/null 2>&1 &"])
            print("ready", flush=True)
            time.sleep(600)


def test_what_a_killed_run_left_is_cleaned_up():
    command = [sys.executable, "-c", "from tests.netns.test_side_by_side import hold; hold()"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as held:
        assert held.stdout is not None
        try:
            assert held.stdout.readline() == "ready\n"
            (group,) = groups()
            assert (group / "cgroup.procs").read_text().split()
        finally:
            held.kill()
    output = netbench("clean", "--dry-run").stdout
    assert f"would be undone: mkdir {group} && echo " in output
    assert groups() == [group]
    done = netbench("clean")
    assert done.returncode == 0, done.stdout + done.stderr
    wait_for(lambda: groups() == [])
