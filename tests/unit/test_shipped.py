"""Shipped files and plug-ins are found, listed, and can be measured with."""

from importlib.metadata import EntryPoint, EntryPoints, PackageNotFoundError, entry_points

import pytest

from netbench.cli.listing import listing
from netbench.config import plugins as plugins_module
from netbench.config import shipped as shipped_module
from netbench.config.loading import load_topology
from netbench.config.plugins import GENERATORS, SINKS, UUTS, installed, option_models, plugins
from netbench.config.shipped import PROFILES, TOPOLOGIES, find, shipped
from netbench.errors import UsageError
from netbench.model.shipped_packets import SHIPPED_PACKETS
from netbench.testbed.doctor import platforms as platforms_module
from netbench.testbed.doctor.host_checks import Status, check_plug_ins
from netbench.uut.raw import Raw

SHIPPED_TOPOLOGIES, SHIPPED_PROFILES, KINDS_OF_UUTS = map(
    str.split,
    (
        """
        che2010-network fisher2012-network lab-cabled lab-encapsulations lab-kvm lab-virtualbox lab-vm lab-vmm lab-xen
        netns netns-3 netns-attachments netns-both netns-datapaths netns-demo netns-encapsulations netns-isolation
        netns-neighbour netns-qemu-e1000 netns-qemu-virtio netns-qemu-vmxnet3 netns-ssh netns-vmm netns-vmm-3 padala2007
        sampath2013-network schlosser2011 two-nics
        """,
        """
        bandwidth che2010-network demo encapsulations fisher2012-network flows interference ndr padala2007 quick
        response-time rfc2544 rfc2544-short sampath2013-network schlosser2011 schlosser2011-dedicated
        schlosser2011-delay-frame-size schlosser2011-delay-pktgen-size schlosser2011-short schlosser2011-streams
        slo tst009
        """,
        "container esxi external forwarder libvirt openvz ovs qemu raw reference virtualbox xen",
    ),
)


def test_the_shipped_files_by_their_bare_names():
    assert list(shipped(TOPOLOGIES)) == SHIPPED_TOPOLOGIES
    assert list(shipped(PROFILES)) == SHIPPED_PROFILES
    assert all(path.is_file() for folder in (TOPOLOGIES, PROFILES) for path in shipped(folder).values())
    assert shipped("no-such-folder") == {}


def test_a_bare_name_is_a_shipped_file_wherever_one_is_unless_there_is_a_file_of_the_users_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "netns").mkdir()  # a directory of that name is not meant
    assert find(TOPOLOGIES, "netns") == shipped(TOPOLOGIES)["netns"]
    (tmp_path / "netns").rmdir()
    (tmp_path / "netns").write_text("name: mine\n")
    assert find(TOPOLOGIES, "netns").read_text() == "name: mine\n"


@pytest.mark.parametrize("name", ["mine.yaml", "mine.yml", "./netns", "lab/netns"])
def test_a_path_is_a_path_whether_it_exists_or_not(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert str(find(TOPOLOGIES, name)) == name.removeprefix("./")


@pytest.mark.parametrize(
    ("folder", "what", "names", "meant"),
    [
        (TOPOLOGIES, "topology", SHIPPED_TOPOLOGIES, ""),
        (PROFILES, "profile", SHIPPED_PROFILES, "did you mean quick? "),
    ],
)
def test_an_unknown_name_lists_those_there_are(folder, what, names, meant):
    with pytest.raises(UsageError) as caught:
        find(folder, "quik")
    listed = f"{meant}there are {', '.join(names)}"
    assert str(caught.value) == f"quik: no such {what}: neither a file nor one of the shipped ones; {listed}"


def test_without_a_checkout_the_installed_files_are_found(tmp_path, monkeypatch):
    """As after `pip install`: the package elsewhere, the files under share/netbench of the environment."""

    def unknown(name):
        raise PackageNotFoundError(name)

    share = tmp_path / "share" / "netbench" / TOPOLOGIES
    share.mkdir(parents=True)
    (share / "only.yaml").write_text("")
    elsewhere = tmp_path / "site-packages" / "netbench" / "config" / "shipped.py"
    monkeypatch.setattr(shipped_module, "__file__", str(elsewhere))
    monkeypatch.setattr(shipped_module, "distribution", unknown)
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    assert shipped(TOPOLOGIES) == {"only": share / "only.yaml"}
    assert shipped(PROFILES) == {}


def test_the_list_names_everything_with_a_line_about_it():
    lines = listing(200).splitlines()
    titles = [line for line in lines if not line.startswith(" ")]
    assert titles == ["topologies:", "profiles:", "packets:", "generators:", "sinks:", "schedules:", "tools:", "UUTs:"]
    entries = dict(line.split(maxsplit=1) for line in lines if line.startswith(" "))
    assert list(entries) == [
        *shipped(TOPOLOGIES),
        *(name for name in SHIPPED_PROFILES if name not in SHIPPED_TOPOLOGIES),
        *SHIPPED_PACKETS,
        *("afpacket", "auto", "pktgen", "trex", "xdp"),
        *("bpf", "tcpdump"),  # the other `auto` and `trex` have the names of the first
        *("plan", "search"),
        *("connect", "http", "iperf3", "sockperf", "two-tier"),
        *KINDS_OF_UUTS,
    ]
    assert entries["netns"] == "one stream through the kernel of this machine, in network namespaces"


def test_the_built_in_kinds_are_plugins_like_any_other():
    assert list(plugins(GENERATORS)) == ["afpacket", "auto", "pktgen", "trex", "xdp"]
    assert list(plugins(SINKS)) == ["auto", "bpf", "tcpdump", "trex"]
    assert list(plugins(UUTS)) == list(option_models(UUTS)) == KINDS_OF_UUTS
    assert option_models(UUTS)["raw"].__name__ == "RawOptions"


def offer(monkeypatch, *entries):
    found = EntryPoints(EntryPoint(name, value, UUTS) for name, value in entries)
    monkeypatch.setattr(plugins_module, "entry_points", lambda group: found.select(group=group))


def test_a_kind_from_elsewhere_is_listed_too(monkeypatch):
    offer(monkeypatch, ("raw", "netbench.uut.raw:Raw"), ("a-fake", "tests.unit.fakes:FakeUut"))
    assert list(plugins(UUTS)) == ["a-fake", "raw"]


class FormOfOptions:
    """A kind without checks of its options."""

    Options = dict
    supports = None


@pytest.mark.parametrize(
    "value",
    [
        "no.such.module:X",
        "netbench.uut.raw:NoSuchClass",
        "tests.unit.inputs:topology",
        "netbench.uut.raw:RawOptions",
        "tests.unit.test_shipped:FormOfOptions",
    ],
)
def test_a_kind_that_cannot_be_imported_disables_only_itself_by_name(monkeypatch, value):
    offer(monkeypatch, ("broken", value), ("raw", "netbench.uut.raw:Raw"))
    assert list(plugins(UUTS)) == ["raw"]
    models = option_models(UUTS)
    assert list(models) == ["raw"]
    output = f"broken ({value}) cannot be imported: "
    assert models.broken["broken"].startswith(output)
    assert read_topology(models, "uuts.0.kind=raw").uuts[0].kind == "raw"
    with pytest.raises(UsageError) as caught:
        read_topology(models, "uuts.0.kind=broken")
    assert str(caught.value).startswith(f"--set topology.uuts.0.kind=broken: {output}")


def read_topology(models, setting):
    return load_topology(
        find(TOPOLOGIES, "netns"), models, ["topology.uuts=[{name: x, kind: raw}]", f"topology.{setting}"]
    )


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_what_an_import_raises_whatever_it_is_is_reported(monkeypatch, error):
    class Entry:
        name, value = "broken", "a:b"

        def load(self):
            raise error("no licence")

    monkeypatch.setattr(plugins_module, "entry_points", lambda group: [Entry()] if group == UUTS else [])
    assert installed(UUTS).broken == {"broken": f"broken (a:b) cannot be imported: {error.__name__}: no licence"}


def test_a_kind_that_fails_when_it_is_asked_for_its_plan_is_not_known_and_the_others_are(monkeypatch):
    class Fails(Raw):
        def plan(self, assignment):
            raise ZeroDivisionError("somebody's defect")

    monkeypatch.setattr(platforms_module, "plugins", lambda group: {"fails": Fails, "raw": Raw})
    fails, raw = platforms_module.platforms()
    assert str(platforms_module.judge(fails, {})) == "not known: ZeroDivisionError: somebody's defect"
    assert raw.plan is not None


def test_the_list_and_the_doctor_name_what_cannot_be_imported(monkeypatch):
    more = {UUTS: [EntryPoint("broken", "no.such.module:X", UUTS)]}
    monkeypatch.setattr(
        plugins_module, "entry_points", lambda group: [*entry_points(group=group), *more.get(group, ())]
    )
    [line] = [line for line in listing(200).splitlines() if line.split()[:1] == ["broken"]]
    assert "broken (no.such.module:X) cannot be imported: ModuleNotFoundError" in line
    [check] = check_plug_ins()
    assert (check.name, check.status) == ("plug-in:broken", Status.WARNING)
    assert "cannot be imported" in check.found


def test_without_any_plug_in_netbench_itself_is_not_installed(monkeypatch):
    offer(monkeypatch)
    with pytest.raises(UsageError, match="netbench is not installed"):
        plugins(UUTS)
