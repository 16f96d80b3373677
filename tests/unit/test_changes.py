"""Changes as data: they survive the journal, describe themselves, and record the values that they will replace."""

import json
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace

import pytest

from netbench.errors import TestbedError, UsageError
from netbench.hosts.base import Completed
from netbench.linux.changes import (
    AddAddress,
    AddBridge,
    AddCgroup,
    AddDelay,
    AddForwardingEntries,
    AddForwardingEntry,
    AddIngress,
    AddMacvlan,
    AddMacvtap,
    AddNamespace,
    AddNeighbour,
    AddRoute,
    AddRule,
    AddRunDirectory,
    AddTable,
    AddTap,
    AddTunnel,
    AddVeth,
    AddVlan,
    AddVlanInterface,
    BindThread,
    Change,
    ChecksumOffloadOff,
    Enslave,
    ForgetConnections,
    GroOn,
    KeepPort,
    MachineState,
    MovePort,
    OffloadsOff,
    ReceiveByNapi,
    Redirect,
    SetPromiscuous,
    SetSysctl,
    SetUp,
    SteerReceived,
)
from netbench.linux.recovery_journal import from_json, to_json
from netbench.vmm.esxi.machine import AddEsxiGuest, AddEsxiNetwork
from netbench.vmm.libvirt.api import AddLibvirtDomain
from netbench.vmm.openvz.container import AddContainer, AddContainerNic, StartContainer
from netbench.vmm.xen.domain import AddDomain, PlaceVif
from tests.unit.fakes import FakeHost

MAC, PEER = "02:00:00:00:00:01", "02:00:00:00:00:02"
CPU = "/sys/fs/cgroup/cpu/nb-x"
ESXI = '{"server": "esx1", "template": "small", "channel": {"key": "k", "host_key": "h"}}'
EACH = {
    AddNamespace("nb-x"): "ip netns add nb-x",
    AddVeth("nb-a", "nb-one", MAC, "nb-b", "nb-two", PEER): (
        f"ip link add nb-one netns nb-a address {MAC} type veth peer nb-two netns nb-b address {PEER}"
    ),
    AddVeth(None, "nb-one", MAC, None, "nb-two", PEER): (
        f"ip link add nb-one address {MAC} type veth peer nb-two address {PEER}"
    ),
    AddVeth("nb-a", "nb-one", MAC, "nb-b", "nb-two", PEER, 9000): (
        f"ip link add nb-one netns nb-a address {MAC} mtu 9000 type veth peer nb-two netns nb-b address {PEER} mtu 9000"
    ),
    AddBridge("nb-a", "br"): "ip -n nb-a link add br type bridge stp_state 0 mcast_snooping 0 forward_delay 0",
    KeepPort("eth1", True, True, ("192.0.2.7/24 label eth1", "::7/64"), (None, 9), (None, 1), 7.5, ("ipv4/x=1",)): (
        "ip address show dev eth1"
    ),
    MovePort("eth1", "nb-b", index=7): "ip link set dev eth1 netns nb-b",
    SetUp("nb-a", "eth1", was_up=False): "ip -n nb-a link set dev eth1 up",
    SetUp(None, "eth1"): "ip link set dev eth1 up",
    Enslave("nb-a", "eth1", "nb-br"): "ip -n nb-a link set dev eth1 master nb-br",
    AddAddress("nb-a", "eth1", "198.18.1.1", 24): "ip -n nb-a address add 198.18.1.1/24 dev eth1",
    AddAddress("nb-a", "eth1", "192.0.2.1", peer="203.0.113.9"): (
        "ip -n nb-a address add 192.0.2.1 peer 203.0.113.9/32 dev eth1"
    ),
    AddNeighbour(None, "eth1", "198.19.1.2", MAC): f"ip neigh replace 198.19.1.2 lladdr {MAC} dev eth1 nud permanent",
    AddForwardingEntry("nb-a", "eth1", MAC): f"bridge -n nb-a fdb replace {MAC} dev eth1 master static",
    AddForwardingEntries("nb-a", "eth1", 0x02AA00000001, 2, 100, 7): (
        "bridge -n nb-a fdb replace 02:aa:00:00:00:01 dev eth1 master static vlan 7  # and 99 more addresses, 2 apart"
    ),
    AddForwardingEntry(None, "eth1", MAC): f"bridge fdb replace {MAC} dev eth1 master static",
    SetSysctl("nb-a", "net.ipv4.ip_forward", "1", old="0"): "ip netns exec nb-a sysctl -w net.ipv4.ip_forward=1",
    SetSysctl(None, "net.ipv4.ip_forward", "1", True): "sysctl -w net.ipv4.ip_forward=1",
    OffloadsOff("nb-a", "eth1", old=("gro on",)): "ip netns exec nb-a ethtool -K eth1 gro off gso off tso off lro off",
    OffloadsOff(None, "eth1"): "ethtool -K eth1 gro off gso off tso off lro off",
    OffloadsOff(None, "eth1", tagging=True): (
        "ethtool -K eth1 gro off gso off tso off lro off tx-vlan-offload off tx-vlan-stag-hw-insert off"
    ),
    ChecksumOffloadOff("nb-a", "eth1", old=("tx-checksum-ip-generic",)): "ip netns exec nb-a ethtool -K eth1 tx off",
    ReceiveByNapi("nb-a", "nb-x"): (
        "ip netns exec nb-a ethtool -K nb-x rx-gro-list off rx-udp-gro-forwarding off gro on && "
        "ip netns exec nb-a sh -c 'echo 1 >/sys/class/net/nb-x/threaded'"
    ),
    BindThread("nb-a", "napi/x", (0, 2), 31): "taskset -p 5 31  # the thread napi/x of nb-a",
    BindThread("nb-a", "napi/x", (0, 2), 31, policy="fifo"): (
        "taskset -p 5 31 && chrt --fifo -p 1 31  # the thread napi/x of nb-a"
    ),
    AddTable("nb-a", "ip", "x", "add table ip x\n"): "ip netns exec nb-a nft -f - <<'END'\nadd table ip x\nEND",
    ForgetConnections("nb-a"): "ip netns exec nb-a conntrack -F",
    AddVlanInterface("nb-a", "nb-v", "nb-t", 100): (
        "ip -n nb-a link add link nb-t name nb-v type vlan protocol 802.1Q id 100"
    ),
    AddTunnel("nb-a", "nb-x", "vxlan", 100, "02:00:00:00:00:01", "198.18.1.1", "198.18.1.2"): (
        "ip -n nb-a link add name nb-x address 02:00:00:00:00:01 type vxlan id 100 local 198.18.1.1 remote 198.18.1.2 "
        "dstport 4789 nolearning noudpcsum"
    ),
    AddVlan("nb-a", "nb-t", 100): "bridge -n nb-a vlan add dev nb-t vid 100",
    AddRule("nb-a", 4, "nb-t", 101): "ip -4 -n nb-a rule add pref 1000 iif nb-t lookup 101",
    AddRoute("nb-a", 6, "nb-u", 101, "2001:2::1"): (
        "ip -6 -n nb-a route add ::/0 via 2001:2::1 dev nb-u onlink table 101"
    ),
    AddDelay("nb-a", "nb-t", 500): "tc -n nb-a qdisc add dev nb-t root netem delay 500us limit 100000",
    AddIngress("nb-a", "nb-t"): "tc -n nb-a qdisc add dev nb-t ingress",
    Redirect(None, "nb-t", "nb-u"): (
        "tc filter add dev nb-t ingress protocol all prio 1 u32 match u32 0 0 action mirred egress redirect dev nb-u"
    ),
    SetPromiscuous("nb-a", "nb-t", was=True): "ip -n nb-a link set dev nb-t promisc on",
    GroOn("nb-a", "nb-t", was_on=True): "ip netns exec nb-a ethtool -K nb-t gro on",
    SteerReceived(None, "nb-t", (0, 33), ("/x/rps_cpus:00,0",)): (
        "sh -c 'echo 00000002,00000001 | tee /sys/class/net/nb-t/queues/rx-*/rps_cpus'"
    ),
    AddMacvtap("nb-a", "nb-m", "nb-in"): "ip -n nb-a link add link nb-in name nb-m type macvtap mode passthru",
    AddMacvlan("nb-a", "nb-m", "nb-in", "nb-g", "02:00:00:00:00:01"): (
        "ip -n nb-a link add link nb-in name nb-m netns nb-g address 02:00:00:00:00:01 type macvlan mode bridge"
    ),
    AddRoute(None, 4, "eth0", 254, "10.118.1.1", "198.18.1.0/24"): (
        "ip -4 route add 198.18.1.0/24 via 10.118.1.1 dev eth0 onlink table 254"
    ),
    AddTap("nb-a", "nb-t"): "ip -n nb-a tuntap add dev nb-t mode tap vnet_hdr",
    AddTap(None, "nb-t", 2): "ip tuntap add dev nb-t mode tap vnet_hdr multi_queue",
    AddRunDirectory("/run/netbench/vm/x"): "mkdir -p -m 700 /run/netbench/vm/x",
    AddContainer("vzctl", "7", "nb-x", "debian-12", 256, ("--cpuunits", "500"), ("bridge",)): (
        "vzctl create 7 --ostemplate debian-12 --name nb-x && "
        "vzctl set 7 --onboot no --ram 256M --swap 0 --cpuunits 500 --features bridge:on --save"
    ),
    AddContainer("prlctl", "nb-x", "nb-x", "", 256, ("--cpumask", "1,2")): (
        "prlctl create nb-x --vmtype ct && prlctl set nb-x --autostart off --memsize 256M --cpumask 1,2"
    ),
    StartContainer("prlctl", "mine", own=False): "prlctl start mine",
    AddContainerNic("vzctl", "7", "nb-vi-s1", MAC, MAC): (
        f"vzctl set 7 --netif_add nb-vi-s1,{MAC},nb-vi-s1,{MAC} && vzctl set 7 --ifname nb-vi-s1 --mac_filter off"
    ),
    AddEsxiNetwork(ESXI, "nb-x", "vmnic2"): (
        "govc host.vswitch.add -nic=vmnic2 nb-x && govc host.portgroup.add -vswitch=nb-x nb-x && "
        "govc host.portgroup.change -allow-promiscuous=true -forged-transmits=true -mac-changes=true nb-x"
    ),
    AddEsxiGuest(ESXI, "nb-x", ("nb-y",), (MAC,), 200, 0.5): (
        f"govc vm.clone -vm=small -c=1 -m=1024 -on=false nb-x && "
        f"govc vm.network.add -vm=nb-x -net=nb-y -net.adapter=vmxnet3 -net.address={MAC} && "
        "govc vm.change -vm=nb-x -latency=normal -cpu.shares=2000 '-cpu.limit=0.5*MHZ'"
    ),
    AddDomain("nb-x", "/run/netbench/vm/x/domain.cfg", "memory = 256\n", "micro"): (
        "cat >/run/netbench/vm/x/domain.cfg <<'END'\nmemory = 256\nEND\n"
        "xl create -p -e -q /run/netbench/vm/x/domain.cfg"
    ),
    AddLibvirtDomain("qemu:///system", "nb-x"): "! virsh -c qemu:///system domuuid nb-x",
    PlaceVif("nb-x", 1, "vif", None, "nb-ve-s1", "02:6e:67:00:01:02"): (
        "ip link set dev vifDOMID.1 address 02:6e:68:00:01:02 name nb-ve-s1"
    ),
    AddCgroup(None, "nb-x"): "mkdir /sys/fs/cgroup/nb-x",
    AddCgroup(None, "nb-x", limit=0.2, directory="/sys/fs/cgroup/cpu", version=1): (
        f"mkdir {CPU} && echo 100000 >{CPU}/cpu.cfs_period_us && echo 20000 >{CPU}/cpu.cfs_quota_us"
    ),
}


class Ethtool(FakeHost):
    """A NIC with offloads. TSO has three kinds: one is off, and switching all on would switch it on."""

    def __init__(self, tso="off", gso="off", gro="off", lro="off [fixed]"):
        super().__init__()
        self.states = {
            "rx-checksumming": "on",
            "\ttx-tcp-segmentation": tso,
            "\ttx-tcp-ecn-segmentation": "off [fixed]",
            "\ttx-tcp6-segmentation": "off",
            "generic-segmentation-offload": gso,
            "generic-receive-offload": gro,
            "large-receive-offload": lro,
        }

    def run(self, argv, *, stdin="", timeout_s=30.0):
        kinds = {name for name in self.states if name.startswith("\t")}
        if argv[1] == "-k":
            tso = "on" if "on" in {self.states[name] for name in kinds} else "off"
            lines = [f"{name}: {state}" for name, state in self.states.items()]
            return Completed(
                argv, 0, "\n".join(["Features:", lines[0], f"tcp-segmentation-offload: {tso}", *lines[1:]]), ""
            )
        short = {
            "gso": "generic-segmentation-offload",
            "gro": "generic-receive-offload",
            "lro": "large-receive-offload",
        }
        for name, state in zip(argv[3::2], argv[4::2], strict=True):
            checksums = {kind for kind in kinds if "checksum" in kind}
            groups = {"tso": kinds - checksums, "tx": checksums}
            for offload in groups.get(name, {short.get(name, f"\t{name}")}):
                assert offload in self.states
                if "fixed" not in self.states[offload]:
                    self.states[offload] = state
        return Completed(argv, 0, "", "")


def kinds(kind):
    for child in kind.__subclasses__():
        if child.__module__.startswith("netbench."):
            yield child
            yield from kinds(child)


@pytest.mark.parametrize(("change", "command"), EACH.items(), ids=lambda value: type(value).__name__)
def test_a_change_reports_where_it_lives_and_what_it_does_and_survives_the_journal(change, command):
    assert change.command == command
    assert change.inside == ("nb-a" if "nb-a" in command else None)
    assert from_json(json.loads(json.dumps(to_json(change)))) == change


def test_every_kind_of_change_can_be_read_back():
    of_no_kind = {
        "AddLink",
        "OpenVzChange",
        "EsxiChange",
        "InNamespace",
        "KernelRequest",
        "RequestInNamespace",
        "RequestOfFamily",
        "FeatureChange",
    }
    # test_libvirt_lxc.py, test_container_memory.py: what makes them depends on the machine.
    elsewhere = {"AddGroups", "AddMemoryGroup"}
    assert {type(change).__name__ for change in EACH} == {
        kind.__name__ for kind in kinds(Change)
    } - of_no_kind - elsewhere


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        (
            {"change": "OwnDomain", "module": "netbench.vmm.libvirt_changes", "uri": "u", "name": "n"},
            "AddLibvirtDomain",
        ),
        (
            {
                "change": "AddEsxiNetwork",
                "module": "netbench.vmm.esxi_changes",
                "told": "{}",  # codespell:ignore told - as in journals of earlier versions
                "name": "n",
                "uplink": "u",
            },
            "AddEsxiNetwork",
        ),
        (
            {"change": "AddPeerAddress", "netns": None, "interface": "i", "address": "192.0.2.1", "peer": "192.0.2.9"},
            "AddAddress",
        ),
    ],
)
def test_changes_of_earlier_versions_can_be_undone(entry, name):
    assert type(from_json(entry)).__name__ == name


def test_an_unknown_change_is_refused():
    with pytest.raises(KeyError):
        from_json({"change": "Format", "disk": "sda"})
    with pytest.raises(TypeError):
        from_json({"change": "AddNamespace", "nam": "x"})
    with pytest.raises(KeyError):
        from_json({"change": "AddBox", "module": "a_plug_in_that_is_gone"})


def test_a_change_whose_module_an_older_version_had_elsewhere_can_be_undone():
    entry = {**to_json(AddLibvirtDomain("nb-x", "test:///default")), "module": "netbench.vmm.of_an_older_version"}
    program = f"from netbench.linux.recovery_journal import from_json; print(from_json({entry}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{AddLibvirtDomain('nb-x', 'test:///default')}\n", "")


@pytest.mark.parametrize(("found", "written"), [("0", [("1"), ("0")]), ("1", [])])
def test_a_sysctl_is_put_back_to_what_was_found_and_not_written_where_it_is_right(monkeypatch, found, written):
    path = "/proc/sys/net/ipv4/ip_forward"
    host, output = FakeHost(files={path: f"{found}\n"}), []
    monkeypatch.setattr(host, "write", lambda file, text: output.append((file, text)))
    change = SetSysctl(None, "net.ipv4.ip_forward", "1").with_former_state(MachineState(host))
    assert (change.old, output) == (found, [])
    change.make(host)
    change.undo(host)
    assert output == [(path, text) for text in written]


def test_a_sysctl_that_does_not_exist():
    change = SetSysctl(None, "net.bridge.bridge-nf-call-iptables", "0", optional=True).with_former_state(
        MachineState(FakeHost())
    )
    change.make(FakeHost())
    change.undo(FakeHost())
    with pytest.raises(TestbedError, match="/proc/sys/net/bridge/bridge-nf-call-iptables cannot be read"):
        replace(change, optional=False).with_former_state(MachineState(FakeHost()))


@pytest.mark.parametrize(
    ("states", "fails"),
    [
        ({"gro": "on"}, ""),
        ({"gso": "off [requested on]"}, ""),
        ({"tso": "on", "lro": "off"}, ""),
        ({"gso": "on [fixed]"}, "gso cannot be switched off; frames would be merged or split"),
        ({"lro": "on [fixed]"}, "lro cannot be switched off"),
    ],
)
def test_offloads_found_on_are_switched_off_and_on_again(states, fails):
    """An offload that a driver keeps on merges frames even when nothing else is on."""
    host = Ethtool(**states)
    before = dict(host.states)
    change = OffloadsOff(None, "eth1").with_former_state(MachineState(host))
    with pytest.raises(TestbedError, match=fails) if fails else nullcontext():
        change.make(host)
    if not fails:
        assert not any(state == "on" for name, state in host.states.items() if name != "rx-checksumming")
    change.undo(host)
    assert host.states == before


@pytest.mark.parametrize(
    ("generic", "ipv4", "fails"),
    [
        ("on", "off", ""),
        ("off [fixed]", "on", ""),
        ("off", "off [fixed]", ""),
        ("off [requested on]", "on", ""),
        ("on [fixed]", "off", "tx-checksum-ip-generic cannot be switched off"),
    ],
)
def test_checksum_offloads_found_on_are_switched_off_and_on_again(generic, ipv4, fails):
    host = Ethtool()
    host.states |= {"\ttx-checksum-ip-generic": generic, "\ttx-checksum-ipv4": ipv4}
    before = dict(host.states)
    change = ChecksumOffloadOff(None, "eth1").with_former_state(MachineState(host))
    with pytest.raises(TestbedError, match=fails) if fails else nullcontext():
        change.make(host)
    if not fails:
        assert not any(state == "on" for name, state in host.states.items() if name.startswith("\ttx-checksum"))
    change.undo(host)
    assert {name: state.split()[0] for name, state in host.states.items()} == {
        name: state.split()[0] for name, state in before.items()
    }


@pytest.mark.parametrize(
    "change",
    [
        AddRunDirectory("/run/netbench/vm/gone"),
        SetSysctl(None, "net.ipv6.conf.gone.disable_ipv6", "1", old="0"),
        OffloadsOff(None, "gone", old=("gro on",)),
        ChecksumOffloadOff(None, "gone", old=("tx-checksum-ipv4",)),
        GroOn(None, "gone"),
        SteerReceived(None, "gone", (0,), ("/sys/class/net/gone/queues/rx-0/rps_cpus:0",)),
    ],
    ids=lambda change: type(change).__name__,
)
def test_undoing_what_is_not_there_is_harmless(change):
    no_device = Completed((), 1, "", 'Cannot find device "gone"')
    answers = {
        "ethtool": Completed((), 75, "", "netlink error: no device matches name"),
        "rm": Completed((), 0, "", ""),
    }
    change.undo(FakeHost({"ip": no_device, "sh": no_device, **answers}))


KILLED = Completed((), -9, "", "")
KILLED_TOOLS = {"ethtool": KILLED, "sh": KILLED, "grep": KILLED, "ip": Completed((), 0, '[{"flags": []}]', "")}


@pytest.mark.parametrize(
    "change",
    [
        OffloadsOff(None, "eth1", old=("gro on",)),
        ChecksumOffloadOff(None, "eth1", old=("tx-checksum-ipv4",)),
        GroOn(None, "eth1"),
        SteerReceived(None, "eth1", (0,), ("/sys/class/net/eth1/queues/rx-0/rps_cpus:0",)),
        KeepPort("eth1", True, settings=("ipv4/conf/eth1/proxy_arp=1",)),
    ],
    ids=lambda change: type(change).__name__,
)
def test_an_undo_whose_command_was_killed_is_not_taken_for_done(change):
    with pytest.raises(TestbedError, match="were not read whole|code -9|GRO stays on"):
        change.undo(FakeHost(KILLED_TOOLS))


def test_a_setting_that_cannot_be_read_is_not_taken_for_gone(monkeypatch):
    host = FakeHost(files={"/proc/sys/net/core/x": "1"})
    monkeypatch.setattr(host, "read", lambda path: (_ for _ in ()).throw(TestbedError(f"{path}: Too many open files")))
    with pytest.raises(TestbedError, match="Too many open files"):
        SetSysctl(None, "net.core.x", "1", old="0").undo(host)


def test_an_undo_that_the_kernel_refuses_is_not_hidden():
    refused = Completed((), 1, "", "Operation not permitted")
    for port in (MovePort("eth1", "nb-x"), KeepPort("eth1", True)):
        with pytest.raises(TestbedError, match="Operation not permitted"):
            port.undo(FakeHost({"sh": refused, "ip": refused}))


class Port(FakeHost):
    """A port with an address; `answers` are the results of other queries, by the words of the query."""

    def __init__(self, address=(), **answers):
        super().__init__()
        self.lines = []
        own = {"family": "inet", "local": "192.0.2.7", "prefixlen": 24, "scope": "global", "label": "eth1"}
        times = {"valid_life_time": 2**32 - 1, "preferred_life_time": 2**32 - 1}
        link = {"ifname": "eth1", "ifindex": 7, "flags": ["UP"], "addr_info": [own | times | dict(address)]}
        self.link, self.output = link, {"address": json.dumps([link]), **answers}

    def read(self, path):
        return "1000.0 0.0" if path == "/proc/uptime" else super().read(path)

    def run(self, argv, *, stdin="", timeout_s=30.0):
        if "-batch" in argv:
            self.lines += stdin.splitlines()
            return Completed(tuple(argv), 0, "", "")
        return Completed(tuple(argv), 0, next((text for word, text in self.output.items() if word in argv), ""), "")


ROUTES = json.dumps([{"dst": "192.0.2.0/24", "protocol": "kernel"}, {"dst": "198.51.100.0/24"}])
HOOK = "table inet x {\n\tchain y {\n\t\ttype filter hook ingress devices = { eth0, eth1 } priority filter;\n"


@pytest.mark.parametrize(
    ("lent", "has", "named"),
    [
        (True, {"route": ROUTES}, "2 static routes"),  # one of each family
        (False, {"route": ROUTES}, "1 static routes"),  # the IPv6 route
        (True, {"proxy": '[{"dst":"192.0.2.9"}]'}, "2 static neighbours or proxies"),
        (True, {"token": '[{"token":"::7"}]'}, "a token for its addresses"),
        (True, {"nft": HOOK}, "chains of nftables"),
        (True, {"address": {"label": "other"}}, "the address 192.0.2.7 with the label 'other'"),
        (True, {"address": {"temporary": True}}, "the temporary address 192.0.2.7"),
        (True, {"grep": "/proc/sys/net/ipv4/conf/eth1/mc_forwarding:1\n"}, "multicast routing"),
    ],
)
def test_a_port_with_what_could_not_be_given_back_is_refused(lent, has, named):
    with pytest.raises(UsageError, match=f"port eth1 cannot be restored after the run, because it has {named}"):
        KeepPort("eth1", lent).with_former_state(MachineState(Port(**has)))
    KeepPort("eth1", lent).with_former_state(MachineState(Port(nft=HOOK.replace("eth1", "eth11"))))


@pytest.mark.parametrize(("passed_s", "left"), [(10, "90 preferred_lft 0"), (99.5, "1 preferred_lft 0"), (100, "")])
def test_the_time_that_an_address_has_passes_while_its_port_is_lent(monkeypatch, passed_s, left):
    port = Port({"valid_life_time": 100, "preferred_life_time": 5})
    change = KeepPort("eth1", True).with_former_state(MachineState(port))
    monkeypatch.setattr(port, "read", lambda path: f"{1000.0 + passed_s} 0.0")
    port.output["address"] = json.dumps([port.link | {"addr_info": []}])
    change.undo(port)
    words = "address replace 192.0.2.7/24 label eth1 scope global dev eth1 valid_lft"
    assert port.lines == ([f"{words} {left}"] if left else [])


def test_connections_on_another_host_are_forgotten_by_python_there_if_it_has_any():
    change = ForgetConnections("nb-a")
    for answer in (
        Completed((), 0, "", ""),
        Completed((), 1, "", 'exec of "python3" failed: No such file or directory'),
    ):
        host = FakeHost({"ip": answer})
        change.make(host)
        assert [command[:7] for command in host.commands] == [("ip", "netns", "exec", "nb-a", "python3", "-I", "-S")]
    with pytest.raises(TestbedError, match="Operation not permitted"):
        change.make(FakeHost({"ip": Completed((), 1, "", "PermissionError: [Errno 1] Operation not permitted")}))
