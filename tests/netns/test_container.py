"""Containers: they fulfil the contract of every VMM and take part in campaigns, and losses inside them are located."""

import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

from netbench.config.document import yaml_text
from netbench.errors import MissingError, TestbedError
from netbench.hosts.clock import wait_until
from netbench.hosts.local import LocalHost, marked_processes
from netbench.hosts.pipes import end
from netbench.images.library import find_image
from netbench.images.on_host import unpack
from netbench.linux.cgroups import find_memory_controller
from netbench.linux.proc import all_processes
from netbench.model.topology_specs import CpuShares, UutSpec
from netbench.model.verdict import ReasonKind
from netbench.testbed.cpus import usable_cpus
from netbench.uut.base import EVERYTHING, ActiveGuest
from netbench.uut.guest import Guest
from netbench.vmm.container import container
from netbench.vmm.container.container import Container, ContainerOptions
from netbench.vmm.container.libvirt_lxc import PACKAGES, find_lxc_driver
from netbench.vmm.libvirt.api import libvirt_module
from tests.breakages import NOTHING, SENT, Broken, load_shipped, measured, no_route_in_guest, ruled
from tests.commands import FEW, FEW_FRAMES, netbench, rows, settings, verdict_of
from tests.contract.vmm_contract import VmmContract
from tests.netns.watching import events, wait_for
from tests.netns.yard import FRAMES, fresh_yard, groups
from tests.unit.inputs import topology
from tests.users_libvirtd import HERE, domains, users_daemon

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not shutil.which("lxc-start"), reason="needs LXC: apt-get install lxc"),
]


def lacking_for_libvirt() -> str:
    try:
        find_lxc_driver("")
    except MissingError as error:
        return f"{error}: apt-get install {' '.join(PACKAGES)}"
    return ""


SEVEN = "numgen inc mod 100 < 7 counter drop"
BREAKAGES = [
    ruled("before it", "uut", "netdev egress nb-vi-s1", SEVEN, {"ingress veth (nft netdev x c rule 2)": 14}),
    ruled("in it", "guest", "inet forward", SEVEN, {"guest IP layer (nft inet x c rule 2)": 14}),
    no_route_in_guest("nb-ve-s1"),
    Broken(
        "no room in its egress queue",
        "guest",
        "tc qdisc add dev nb-ve-s1 root pfifo limit 0",
        "tc qdisc del dev nb-ve-s1 root",
        {"guest egress queue (dropped)": SENT},
    ),
    ruled("behind it", "uut", "netdev ingress nb-ve-s1", SEVEN, {"egress veth (nft netdev x c rule 2)": 14}),
    Broken(
        "its ingress NIC is down",
        "guest",
        "ip link set nb-vi-s1 down",
        "ip link set nb-vi-s1 up",
        {"uut (between ingress NIC and egress NIC)": SENT},
        (ReasonKind.UUT_FAILED,),
    ),
]


class TestLxc(VmmContract):
    def vmm(self):
        return Container(ContainerOptions(forward="route"))

    def broken(self):
        return Container(ContainerOptions(root="image", image="/var/empty-root/"))


needs_podman = pytest.mark.skipif(
    not (shutil.which("podman") and shutil.which("crun")), reason="needs podman and crun: apt-get install podman crun"
)
needs_libvirt = pytest.mark.skipif(bool(lacking := lacking_for_libvirt()), reason=lacking)
RUNTIMES = ["lxc", pytest.param("podman", marks=needs_podman), pytest.param("libvirt", marks=needs_libvirt)]


@needs_podman
class TestPodman(VmmContract):
    def vmm(self):
        return Container(ContainerOptions(runtime="podman", forward="bridge"))

    def broken(self):
        return Container(ContainerOptions(runtime="podman", root="image", image="/var/empty-root/"))


@needs_libvirt
class TestLibvirt(VmmContract):
    def vmm(self):
        return Container(ContainerOptions(runtime="libvirt", forward="bridge"))

    def broken(self):
        return Container(ContainerOptions(runtime="libvirt", root="image", image="/var/empty-root/"))


BOX = """
<domain type='lxc'>
  <name>{name}</name>
  <memory unit='MiB'>512</memory>
  <os><type>exe</type><init>/bin/sh</init><initarg>-c</initarg><initarg>{does}; exec sleep 1000000</initarg></os>
  <features><privnet/></features>
  <devices>{devices}<console type='pty'/></devices>
</domain>
"""


def lacking_for_domains() -> str:
    try:
        libvirt_module()
    except MissingError as error:
        return str(error)
    return lacking


needs_users_libvirt = pytest.mark.skipif(bool(lacking_for_domains()), reason=lacking_for_domains())


@pytest.fixture
def users(tmp_path):
    """The URI of a user's libvirtd for containers, and a connection to it; in the end it must be unchanged."""
    with users_daemon(HERE, tmp_path / "libvirtd") as uri:
        uri = f"lxc{uri.removeprefix('qemu')}"
        connection = libvirt_module().open(uri)
        yield uri, connection
        connection.close()


@needs_users_libvirt
class TestDomainOfLibvirt(VmmContract):
    """The copy of a container that a user has defined, with the programs of this machine."""

    uri = "lxc:///system"

    @pytest.fixture(autouse=True)
    def _defined(self, request):
        if "yard" not in request.fixturenames:
            yield
            return
        self.uri, connection = request.getfixturevalue("users")
        connection.defineXML(BOX.format(name="box", does="true", devices=""))
        before = domains(connection)
        yield
        assert domains(connection) == before

    def vmm(self):
        return Container(ContainerOptions(runtime="libvirt", uri=self.uri, domain="box", forward="route"))

    def broken(self):
        return Container(ContainerOptions(runtime="libvirt", uri=self.uri, domain="gone"))


@needs_users_libvirt
def test_what_the_copy_of_a_domain_writes_goes_with_it_and_nothing_else_of_it_is_touched(users, tmp_path, results):
    uri, connection = users
    own, data = unpack(find_image("micro")), tmp_path / "its data"
    data.mkdir()
    (data / "here").write_text("before")
    mounts = "".join(
        f"<filesystem type='mount'><source dir='{source}'/><target dir='{target}'/></filesystem>"
        for source, target in ((own, "/"), (data, "/mnt"))
    )
    writes = "echo after >/mnt/here; echo new >/mnt/there; echo new >/root/new; cat /mnt/here"
    connection.defineXML(BOX.format(name="web", does=writes, devices=mounts))
    there, files = domains(connection), sorted(own.rglob("*"))
    uuts = [
        {"name": name, "kind": "container", "runtime": "libvirt", "uri": uri, "domain": name, "forward": forward}
        for name, forward in (("web", "route"), ("gone", "bridge"))
    ]
    wanted = topology(1, uuts, name="nbt-dom").model_dump(mode="json", exclude_none=True)
    (tmp_path / "topology.yaml").write_text(yaml_text(wanted))
    done = netbench("run", tmp_path / "topology.yaml", "quick", "-o", results, *FEW)
    assert done.returncode == 1, done.stdout + done.stderr
    output = {row["uut"]: row for row in rows(results)}
    web = output["web"]
    assert (web["sent_frames"], web["received_frames"]) == (str(FEW_FRAMES), str(FEW_FRAMES)), web
    assert (web["unexplained_frames"], verdict_of(web)) == ("0", "valid"), web
    assert verdict_of(output["gone"]) == "invalid"
    assert f"there is no domain gone at {uri}, which has: web" in output["gone"]["reasons"] + done.stdout + done.stderr
    assert domains(connection) == there
    assert sorted(own.rglob("*")) == files
    assert {path.name: path.read_text() for path in data.iterdir()} == {"here": "before"}


@needs_users_libvirt
def test_the_copy_does_what_the_domain_does(users):
    uri, connection = users
    connection.defineXML(BOX.format(name="box", does="echo its own", devices=""))
    options = ContainerOptions(runtime="libvirt", uri=uri, domain="box")
    with fresh_yard("nbt-copy") as yard, yard.uut(Guest(Container(options)), "g", ()) as active:
        assert active.ready.inside is not None
        assert active.ready.inside.read("/proc/1/cmdline") == "sleep\x001000000\x00"
        assert wait_until(lambda: "its own" in active.uut.console(), 5.0)
        facts = active.ready.facts
        assert (facts["domain"], facts["root"], facts["memory"]) == ("box", "domain box", "512 MiB")


@pytest.mark.parametrize(
    "options",
    [{}, pytest.param({"runtime": "libvirt", "root": "image"}, marks=needs_libvirt)],
    ids=["host", "libvirt-image"],
)
def test_losses_are_placed_to_the_frame(options, tmp_path):
    spec = UutSpec.model_validate({"name": "box", "kind": "container", "forward": "route", **options})
    given = measured(load_shipped("netns"), spec, BREAKAGES, tmp_path)
    assert given == {breakage.name: (SENT, breakage.lost, 0, breakage.kinds) for breakage in [*BREAKAGES, NOTHING]}


def test_a_campaign_with_its_neighbours(results):
    size = [*FEW, *settings(loads="800fps", duration="250ms")]
    scenarios = settings(scenarios="[dedicated, shared-idle, cpu-light, {network: [500fps]}]")
    done = netbench("run", "netns-vmm", "quick", "-o", results, "--uut", "container", *size, *scenarios)
    assert done.returncode == 0, done.stderr
    found = rows(results)
    assert {row["scenario"] for row in found} == {"dedicated", "shared-idle", "cpu-light", "network-500fps"}
    assert all(row["sent_frames"] == row["received_frames"] != "0" and row["lost_at"] == "" for row in found)
    assert any(float(row["cpu_load_s"] or 0) > 0.1 for row in found)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_one_that_is_not_ready_in_time_is_ended(runtime, monkeypatch):
    monkeypatch.setattr(container, "_INIT", ["/bin/sleep", "60"])  # it never reports that it is ready
    options = ContainerOptions.model_validate({"runtime": runtime, "boot_limit": "300ms"})
    with fresh_yard("nbt-late") as yard:
        with (
            pytest.raises(TestbedError, match="its first process does not run"),
            yard.uut(Guest(Container(options)), "g"),
        ):
            pytest.fail("it is up")
        assert list(marked_processes(yard.run_id)) == []


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_nothing_outlives_a_controller_that_was_killed(start, results, tmp_path, runtime):
    spec = {"name": "box", "kind": "container", "runtime": runtime}
    wanted = topology(1, [spec], name="nbt-box").model_dump(mode="json", exclude_none=True)
    (tmp_path / "topology.yaml").write_text(yaml_text(wanted))
    output = settings(frame_sizes=64, loads="2000fps", repetitions=1, duration="30s")
    campaign = start("run", tmp_path / "topology.yaml", "quick", "-o", results, *output)
    wait_for(lambda: any(event["kind"] == "trial-started" for event in events(results)))
    campaign.kill()
    assert campaign.wait(timeout=20) == -signal.SIGKILL
    assert netbench("clean").returncode == 0  # the fixtures check for leftovers


@needs_libvirt
def test_a_domain_of_libvirts_has_its_cpus_and_its_share(tmp_path):
    """As far as they bind it, and what is run in it: libvirt makes groups of its own below netbench's."""
    last = usable_cpus()[-1]
    with fresh_yard("nbt-share") as yard:
        before = kept()
        options = ContainerOptions(runtime="libvirt")
        with yard.uut(Guest(Container(options)), "g", (), CpuShares((last,), weight=1000, limit=0.25)) as active:
            assert active.ready.inside is not None
            status = active.ready.inside.read("/proc/1/status")
            assert f"Cpus_allowed_list:\t{last}\n" in status
            named = {path.name for path in groups()}
            assert len(named) == 1, "they bear netbench's name, in every hierarchy"
            busy = active.ready.inside.spawn(["sh", "-c", "while :; do :; done"])
            try:
                used_before, began = active.uut.cpu_s()["host"], time.monotonic()
                time.sleep(2.0)
                used, took = active.uut.cpu_s()["host"] - used_before, time.monotonic() - began
            finally:
                end(busy)
            assert 0.1 < used / took < 0.35
        assert groups() == []
        assert kept() == before, "nothing is written where a system's libvirt keeps its files"


@needs_libvirt
@pytest.mark.parametrize(
    ("program", "why"), [("libvirtd", "its libvirtd has ended"), ("libvirt_lxc", "libvirt's domain has ended")]
)
def test_a_domain_whose_libvirt_is_killed_reports_so_and_is_ended(program, why):
    with fresh_yard("nbt-killed") as yard:
        with yard.uut(Guest(Container(ContainerOptions(runtime="libvirt"))), "g") as active:
            (pid,) = (process.pid for process in all_processes() if process.name == program)
            os.kill(pid, signal.SIGKILL)
            assert wait_until(lambda: why in given(active), 10.0), given(active)
        assert list(marked_processes(yard.run_id)) == []


def given(active: ActiveGuest) -> str:
    try:
        active.uut.read()
    except TestbedError as error:
        return str(error)
    return ""


def kept() -> list[str]:
    places = [Path(place, "libvirt") for place in ("/etc", "/var/lib", "/var/log", "/var/cache", "/run")]
    return sorted(str(path) for place in places for path in (place, *place.rglob("*")) if path.exists())


TAKES_100_MIB = ("sh", "-c", "head -c 100M /dev/zero | tail -c 100M | wc -c")


def has_memory_groups():
    try:
        return find_memory_controller(LocalHost("local", "nbt"))
    except MissingError:
        return None


@pytest.mark.skipif(not has_memory_groups(), reason="needs control groups with the memory controller")
@pytest.mark.parametrize(  # libvirt's has no such limit
    ("runtime", "entitlement"),
    [
        ("lxc", EVERYTHING),
        ("lxc", CpuShares((), 50, 0.5)),
        pytest.param("podman", CpuShares((), 50, 0.5), marks=needs_podman),
    ],
    ids=["lxc-alone", "lxc-with-shares", "podman-with-shares"],
)
def test_no_more_memory_is_taken_than_is_allowed(runtime, entitlement):
    plain = ContainerOptions(runtime=runtime)
    limited = ContainerOptions.model_validate({"runtime": runtime, "memory": "48M"})
    with fresh_yard("nbt-memory") as yard:
        path = yard.paths[0]
        with yard.uut(Guest(Container(plain)), "g", (path,), entitlement) as active:
            assert active.ready.inside
            assert active.ready.inside.run(TAKES_100_MIB).stdout.strip() == str(100 << 20)
            assert "memory" not in active.ready.facts
        with yard.uut(Guest(Container(limited)), "g", (path,), entitlement) as active:
            assert active.ready.facts["memory"] == "48 MiB"
            assert active.ready.inside
            taken = active.ready.inside.run(TAKES_100_MIB)
            assert (taken.exit_code, taken.stdout.strip()) != (0, str(100 << 20))
            assert re.search(r"MemAvailable: +49152 kB", active.ready.inside.read("/proc/meminfo"))
            assert len(groups()) == (1 if entitlement is EVERYTHING else 2)
            assert yard.forwarded(active, path) == FRAMES
        assert groups() == []


@pytest.mark.skipif(not has_memory_groups(), reason="needs control groups with the memory controller")
@pytest.mark.skipif(not shutil.which("stress-ng"), reason="needs stress-ng: apt-get install stress-ng")
def test_a_campaign_with_containers_of_little_memory_one_of_which_fills_its_own(results):
    limited = settings(topology__uuts__1__memory="192M", topology__uuts__1__root="host")
    few = [*FEW, *settings(loads="800fps", duration="250ms", scenarios="[cpu-heavy]")]
    done = netbench("run", "netns-vmm", "quick", "-o", results, "--uut", "container", *few, *limited)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = rows(results)
    assert (row["sent_frames"], verdict_of(row)) == (row["received_frames"], "valid")
