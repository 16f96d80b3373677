"""Foreign filters on the path of frames are named, with the number of frames that they dropped."""

import shlex
from collections.abc import Mapping
from dataclasses import replace

import pytest

from netbench.errors import MachineGoneError
from netbench.hosts.base import run_checked
from netbench.hosts.local import LocalHost
from netbench.linux.machine import Machine
from netbench.model.paths import InterfaceRef
from netbench.model.points import ALL_RULES, CountingPoint, PointKind, nic_point
from netbench.uut.base import ActiveGuest
from netbench.uut.raw import Raw, RawOptions
from netbench.uut.reference import DropRule, Reference, ReferenceOptions
from tests.netns.yard import FRAMES, Yard, fresh_yard

pytestmark = pytest.mark.root

# Classic BPF that drops every frame: `ret #2`, TC_ACT_SHOT.
DROP_ALL = "bpf bytecode '1,6 0 0 2' direct-action"
# One rule per place; of 100 frames each drops the number in its name, or an unspecified number.
AROUND_A_BRIDGE = {
    "source": "table netdev x { chain at1 { type filter hook egress device nb-tx1 priority 0; counter; } ; }",
    "uut": """
        table netdev x {
            chain at7 { type filter hook ingress device nb-in1 priority 0; numgen inc mod 100 < 7 counter drop; }
            chain at3 {
                type filter hook egress devices = { nb-out1, nb-out2 } priority 0;
                numgen inc mod 81 vmap { 0 : jump sub }
                limit rate 1/day burst 2 packets counter log drop
            }
            chain sub { counter drop; }
        }
        table bridge x {
            counter mine { }
            chain at12 { type filter hook forward priority 0; numgen inc mod 8 < 1 counter name mine drop; }
            chain in { type filter hook input priority 0; policy drop; }
        }
        table ip asleep { flags dormant; chain c { type filter hook forward priority 0; policy drop; } ; }
        table ip off { chain c { type filter hook forward priority 0; policy drop; } ; }
    """,
    "sink": "table inet x { chain at78 { type filter hook ingress device nb-rx1 priority 0; counter drop; } ; }",
}


@pytest.fixture
def yard():
    with fresh_yard("nbt-hops") as yard:
        yield yard


def raw(forward: str) -> Raw:
    return Raw(RawOptions.model_validate({"forward": forward}))


def read(yard: Yard, stack: str) -> dict[tuple[str, str, str, str], int | None]:
    """Counts by stream, point, counter and role; netlink (this machine) and commands (a VM) must give the same."""
    forwarding = InterfaceRef(None, yard.hosts["uut"].netns, "")
    points = {
        path.name: [
            *(nic_point(role, nic) for role, nic in path.nics.items()),
            CountingPoint(stack, kind=PointKind(stack), place=forwarding),
        ]
        for path in yard.paths
    }
    by_command = Machine("vm", LocalHost("vm", yard.run_id))
    # No command prints how often rules were changed.
    found = tuple(reading for reading in yard.machine.read_counters(points) if reading.counter != ALL_RULES)
    assert by_command.read_counters(points) == found
    places = [
        InterfaceRef(None, forwarding.netns, name)
        for name in ("lo", "nb-in1", "nb-out1", "nb-in2", "nb-u-s1", "nb-none")
    ]
    # ip(8) leaves this counter out while it is 0.
    by_netlink = {
        place: replace(nic, rx_otherhost_dropped=nic.rx_otherhost_dropped or None)
        for place, nic in yard.machine.read_nics(places).items()
    }
    assert by_command.read_nics(places) == by_netlink
    named = {(reading.stream, reading.point, reading.counter, reading.role): reading.frames for reading in found}
    assert len(named) == len(found), "each has a name of its own"
    return named


def dropped(yard: Yard, uut: ActiveGuest, stack: str) -> tuple[int, Mapping[tuple[str, str, str], int | None]]:
    """The number of lost frames out of FRAMES, and the drop counters that grew or are unknown."""
    before = read(yard, stack)
    lost = FRAMES - yard.forwarded(uut, yard.paths[0])
    after = read(yard, stack)
    grew = {key: None if now is None else now - (before[key] or 0) for key, now in after.items()}
    return lost, {key[:3]: by for key, by in grew.items() if by != 0 and key[3] != "passed"}


def run(yard: Yard, host: str, command: str, stdin: str = "") -> None:
    run_checked(yard.hosts[host], shlex.split(command), stdin=stdin)


def test_around_a_bridge(yard):
    with yard.uut(raw("bridge"), "u", yard.paths) as uut:
        assert dropped(yard, uut, "bridge") == (0, {})
        for host, rules in AROUND_A_BRIDGE.items():
            run(yard, host, "nft -f -", stdin=rules)
        # The sink's rule comes behind its NIC's own count.
        assert dropped(yard, uut, "bridge") == (
            7 + 12 + 3,
            {
                ("s1", "ingress NIC", "nft netdev x at7 rule 4"): 7,
                ("", "bridge", "nft bridge x at12 rule 4"): 12,
                ("", "egress NIC", "nft netdev x at3 rule 7"): 2,
                ("", "egress NIC", "nft netdev x sub rule 8"): 1,
                ("s1", "sink NIC", "nft inet x at78 rule 2"): 78,
            },
        )


def test_attached_to_interfaces(yard):
    with yard.uut(raw("bridge"), "u", yard.paths) as uut:
        run(yard, "uut", "tc qdisc add dev nb-out1 root handle 1: htb default 1")
        run(yard, "uut", "tc class add dev nb-out1 parent 1: classid 1:1 htb rate 1gbit")
        run(yard, "uut", "tc qdisc add dev nb-out1 parent 1:1 tbf rate 8kbit burst 200 limit 400")
        lost, counted = dropped(yard, uut, "bridge")
        assert counted == {("s1", "egress NIC", "qdisc htb"): lost}, "what is below it is not counted twice"
        assert lost > 0
        run(yard, "uut", "tc qdisc add dev nb-out1 clsact")
        run(yard, "uut", f"tc filter add dev nb-out1 egress {DROP_ALL}")
        assert dropped(yard, uut, "bridge") == (FRAMES, {("s1", "egress NIC", "tc egress"): FRAMES})
        run(yard, "uut", "tc qdisc add dev nb-in1 ingress")
        run(yard, "uut", f"tc filter add dev nb-in1 ingress {DROP_ALL}")
        assert dropped(yard, uut, "bridge") == (FRAMES, {("s1", "ingress NIC", "tc ingress"): FRAMES})


def test_the_ip_layer_behind_a_bridge(yard):
    """Only where br_netfilter passes frames to it, for all bridges or for one."""
    rules = "table ip x { chain c { type filter hook forward priority 0; numgen inc mod 10 < 1 drop; } ; }"
    unknown = ("", "bridge", "br_netfilter: nft ip x c rule 2")
    with yard.uut(raw("bridge"), "u", yard.paths) as uut:
        run(yard, "uut", "nft -f -", stdin=rules)
        assert dropped(yard, uut, "bridge") == (0, {})
        run(yard, "uut", "ip link set nb-br-s1 type bridge nf_call_iptables 1")
        assert dropped(yard, uut, "bridge") == (10, {unknown: None})


def test_the_ip_layer_of_a_router(yard):
    rules = """
        table inet x { chain c { type filter hook prerouting priority 0; numgen inc mod 100 < 9 counter drop; } ; }
        table ip x { chain c { type filter hook forward priority -1; policy drop; ip ttl 1 accept; counter; } ; }
    """
    own = Reference(ReferenceOptions.model_validate({"forward": "route", "drop": DropRule(k=1, n=100)}))
    with yard.uut(own, "u", yard.paths) as uut:
        assert dropped(yard, uut, "IP layer") == (1, {}), "the rule of netbench's own UUT is that UUT's to read"
        run(yard, "uut", "nft -f -", stdin=rules)
        assert dropped(yard, uut, "IP layer") == (
            FRAMES,
            {
                ("", "IP layer", "nft inet x c rule 2"): 9,
                ("", "IP layer", "nft ip x c policy"): 91,
            },
        )
        run(yard, "uut", "nft flush ruleset")
        run(yard, "uut", "ip address del 198.19.1.1/24 dev nb-out1")
        assert dropped(yard, uut, "IP layer") == (FRAMES, {("", "IP layer", "InNoRoutes"): FRAMES})
        run(yard, "uut", "ip address add 198.19.1.2/24 dev nb-out1")
        assert dropped(yard, uut, "IP layer") == (FRAMES, {("", "IP layer", "UDP NoPorts"): FRAMES})


def test_a_namespace_that_is_gone(yard):
    run(yard, "source", f"ip netns del {yard.hosts['sink'].netns}")
    with pytest.raises(MachineGoneError, match="network namespace nb-nbt-hops-sink is gone"):
        read(yard, "bridge")
