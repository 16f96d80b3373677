"""A stream and its reverse stream: one pair of NICs, two directions, nothing made or counted twice."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from netbench.errors import UsageError
from netbench.linux.changes import (
    AddBridge,
    AddForwardingEntry,
    AddIngress,
    AddMacvtap,
    AddTap,
    AddVeth,
    Redirect,
    SetPromiscuous,
    SetUp,
)
from netbench.model.paths import StreamId, each_nic_once
from netbench.model.points import PointKind
from netbench.model.stream_paths import stream_paths
from netbench.model.topology import Topology
from netbench.model.traffic import Sent
from netbench.report.model import ReportModel
from netbench.report.tables import tables_of
from netbench.selftest.loopback import loopback
from netbench.selftest.loss_checks import references
from netbench.sinks.tcpdump_process import tcpdump_command
from netbench.statistics.delay_and_order import directions
from netbench.statistics.groups import group_trials
from netbench.testbed.resolved import resolve_guests
from netbench.testbed.rings import wanted_rings
from netbench.trial.observation import StreamObservation
from netbench.uut.base import Assignment
from netbench.uut.forwarder import Forwarder, ForwarderOptions
from netbench.uut.forwarding import changes_in_guest, forwarding_changes
from netbench.uut.guest import Guest
from netbench.uut.guest_links import attaching_changes, guest_links, guest_mac, guest_nics, guest_points
from netbench.uut.ovs import Ovs, OvsOptions
from netbench.uut.raw import Raw, RawOptions
from netbench.uut.reference import Reference, ReferenceOptions
from netbench.vmm.attachment import macvtap, tap, veth
from netbench.vmm.esxi.esxi import Esxi
from netbench.vmm.esxi.options import EsxiOptions
from tests.unit.accounts import account, nic_delta
from tests.unit.inputs import stream_traffic, topology
from tests.unit.points import BY_KIND
from tests.unit.received import received
from tests.unit.results_factory import campaign, stream_counts, trial
from tests.unit.stand_in_for_tcpdump import incoming

FORTH = {"name": "s1", "source": "source/tx1", "ingress": "uut/in1", "egress": "uut/out1", "sink": "sink/rx1"}
BACK = {"name": "back", "reverse": "s1"}


def both_ways(*streams, like: int = 1, **more) -> Topology:
    """A topology with these streams."""
    plain = topology(like).model_dump(mode="json", exclude_none=True)
    return Topology.model_validate({**plain, "streams": list(streams), **more})


PAIR = both_ways(FORTH, BACK)
PATHS = stream_paths(PAIR)


def test_a_way_back_has_the_nics_of_its_stream_the_other_way_round():
    forth, back = PATHS
    assert list(back.nics.values()) == list(forth.nics.values())[::-1]
    assert (back.reverse_of, forth.reverse_of) == (StreamId("s1", 1), None)
    assert back.nics_of == forth.nics_of == StreamId("s1", 1)
    assert forth.has_reverse
    assert back.has_reverse
    assert (forth.src_network, back.src_network) == ("198.18.1.0/24", "198.18.2.0/24")
    assert each_nic_once(PATHS) == [forth]
    (alone,) = stream_paths(topology())
    assert not alone.has_reverse


def test_without_nics_of_the_uut_a_way_back_has_none_either():
    ends = [{"ends": ["tester/tx"], "rate": "1Gbit/s"}, {"ends": ["tester/rx"], "rate": "1Gbit/s"}]
    streams = [{"name": "s1", "source": "tester/tx", "sink": "tester/rx"}, BACK]
    hosts = {"tester": {"ports": {"tx": "eth1", "rx": "eth2"}}}
    ports = Topology.model_validate(
        {"name": "x", "hosts": hosts, "links": ends, "streams": streams, "uuts": [{"name": "u", "kind": "external"}]}
    )
    forth, back = stream_paths(ports)
    assert (back.source.interface, back.sink.interface) == (forth.sink.interface, forth.source.interface)
    assert (back.ingress, back.egress) == (None, None)
    assert loopback(ports, cabled=True).links == ports.links


@pytest.mark.parametrize(
    ("streams", "where", "message"),
    [
        ((FORTH, {**BACK, "reverse": "s9"}), "streams.1.reverse", "there is no stream 's9'; streams are s1, back"),
        ((BACK, FORTH), "streams.0.reverse", "stream s1 must come before its reverse"),
        ((FORTH, {**BACK, "reverse": "back"}), "streams.1.reverse", "stream back must come before its reverse"),
        (
            (FORTH, BACK, {"name": "x", "reverse": "back"}),
            "streams.2.reverse",
            "stream back is itself the reverse of s1",
        ),
        (
            (FORTH, BACK, {"name": "x", "reverse": "s1"}),
            "streams.2.reverse",
            "stream s1 has a reverse stream already, back",
        ),
        ((FORTH, {**BACK, "source": "source/tx1"}), "streams.1.source", "a reverse stream has the NICs of s1"),
        ((FORTH, {**BACK, "colour": 1}), "streams.1.colour", "Extra inputs"),
        ((FORTH, {"name": "back", "reverse": 7}), "streams.1.reverse", "string"),
        ((FORTH, {**FORTH, "name": "s2"}), "streams.1.source", "only a stream and its reverse stream share NICs"),
        ((FORTH, {"name": "x"}), "streams.1.source", "Field required"),
        (("s1", BACK), "streams.1.reverse", "there is no stream 's1'"),
    ],
)
def test_what_is_no_way_back_is_refused_at_its_place(streams, where, message):
    with pytest.raises(ValidationError) as caught:
        both_ways(*streams)
    output = {".".join(map(str, problem["loc"])): problem["msg"] for problem in caught.value.errors()}
    assert message in output[where]


def test_both_links_have_one_rate():
    with pytest.raises(ValidationError, match=r"the links of s1 have 1Gbit/s and 10Gbit/s; give both the lower one"):
        both_ways(
            FORTH,
            BACK,
            links=[
                {"ends": ["source/tx1", "uut/in1"], "rate": "1Gbit/s"},
                {"ends": ["uut/out1", "sink/rx1"], "rate": "10Gbit/s"},
            ],
        )


def test_a_neighbour_has_both_directions_or_none():
    second = {"name": "s2", "source": "source/tx2", "ingress": "uut/in2", "egress": "uut/out2", "sink": "sink/rx2"}
    streams = (FORTH, second, {"name": "back2", "reverse": "s2"})
    for own in (["s2"], ["back2"]):
        with pytest.raises(ValidationError, match="stream back2 is the reverse of s2: both must run through the same"):
            both_ways(*streams, like=2, neighbours=[{"name": "n", "streams": own}])
    with_both = both_ways(*streams, like=2, neighbours=[{"name": "n", "streams": ["s2", "back2"]}])
    assert [stream.name for stream in with_both.own_streams] == ["s1"]


def test_a_bridge_is_made_once_and_knows_the_ends_of_both_ways():
    changes = forwarding_changes(PATHS, "bridge")
    assert [change.interface for change in changes if isinstance(change, AddBridge)] == ["nb-br-s1"]
    known = {(change.interface, change.mac) for change in changes if isinstance(change, AddForwardingEntry)}
    assert known == {("nb-out1", PATHS[0].sink.mac), ("nb-in1", PATHS[1].sink.mac)}


@pytest.mark.parametrize("how", ["bridge", "route", "flowtable", "tc", "xdp"])
def test_no_change_is_made_twice(how):
    for changes in (forwarding_changes(PATHS, how), changes_in_guest(PATHS, how) if how != "xdp" else []):
        assert len(changes) == len(set(changes))
        for kind in (SetPromiscuous, SetUp, AddIngress, Redirect):
            interfaces = [change.interface for change in changes if isinstance(change, kind)]
            assert len(interfaces) == len(set(interfaces))


def test_a_router_has_both_networks_at_both_nics():
    commands = [change.command for change in forwarding_changes(PATHS, "route")]
    for given_text in (
        "address add 198.18.1.1/24 dev nb-in1",
        "address add 198.19.1.1/24 dev nb-out1",
        "address add 198.18.2.1/24 dev nb-out1",
        "address add 198.19.2.1/24 dev nb-in1",
        f"neigh replace 198.19.1.2 lladdr {PATHS[0].sink.mac} dev nb-out1 nud permanent",
        f"neigh replace 198.19.2.2 lladdr {PATHS[1].sink.mac} dev nb-in1 nud permanent",
    ):
        assert sum(given_text in command for command in commands) == 1, given_text


def test_open_vswitch_has_one_bridge_and_a_flow_for_each_way():
    commands = [step.command for step in Ovs(OvsOptions()).plan(Assignment("u", PATHS)).steps]
    assert sum("add-br nb-br-s1" in command for command in commands) == 1
    assert not any("br-back" in command for command in commands)
    assert sum("add-flow" in command for command in commands) == 2


def test_xdp_programs_are_reported_of_the_nics_by_which_streams_leave():
    *_, start = Raw(RawOptions(forward="xdp")).plan(Assignment("u", PATHS)).steps
    assert start.command.endswith("auto nb-in1 nb-out1 nb-out1 nb-in1")


def test_a_guest_has_two_nics_and_is_seen_from_both_ways():
    nics = guest_nics(PATHS, "tap")
    assert [(nic.interface, nic.stream, nic.role) for nic in nics] == [
        ("nb-ti-s1", "s1", "ingress"),
        ("nb-te-s1", "s1", "egress"),
    ]
    forth, back = PATHS
    assert guest_mac(back, "ingress") == guest_mac(forth, "egress") != guest_mac(forth, "ingress")
    links = {(link.stream, link.role): link for link in guest_links(PATHS, tap())}
    assert links["back", "ingress"].interface == links["s1", "egress"].interface == "nb-te-s1"
    assert links["back", "ingress"].bridge == links["s1", "egress"].bridge
    assert links["back", "ingress"].nic == links["s1", "egress"].nic
    assert (links["s1", "egress"].point.direction, links["back", "ingress"].point.direction) == ("rx", "tx")
    points = guest_points(PATHS, tuple(links.values()))
    taps = {
        stream: [point.place.interface for point in along if point.place and "tap" in point.name]
        for stream, along in points.items()
    }
    assert taps == {"s1": ["nb-ti-s1", "nb-te-s1"], "back": ["nb-te-s1", "nb-ti-s1"]}


def test_what_attaches_a_guest_is_made_once_with_entries_for_both_ways():
    towards = {"s1": "02:00:00:00:00:01", "back": "02:00:00:00:00:02"}
    changes = list(attaching_changes(PATHS, tap(), towards))
    assert len(changes) == len(set(changes))
    assert [change.interface for change in changes if isinstance(change, AddBridge)] == ["nb-bi-s1", "nb-be-s1"]
    entries = {(change.interface, change.mac) for change in changes if isinstance(change, AddForwardingEntry)}
    assert entries == {
        ("nb-ti-s1", towards["s1"]),
        ("nb-out1", PATHS[0].sink.mac),
        ("nb-te-s1", towards["back"]),
        ("nb-in1", PATHS[1].sink.mac),
    }


@pytest.mark.parametrize("attachment", [tap(), macvtap(), veth("nb-guest")])
def test_each_attachment_is_made_for_two_nics(attachment):
    made = [
        change
        for change in attaching_changes(PATHS, attachment, {"s1": "", "back": ""})
        if hasattr(change, "undo_line")
    ]
    named = [change.line for change in made if isinstance(change, AddTap | AddMacvtap | AddVeth)]
    assert len(named) == len(set(named)) == 2
    mine, other = (point.point for point in guest_links(PATHS, attachment) if point.interface.endswith("i-s1"))
    assert (mine.place, mine.direction) != (other.place, other.direction)
    assert mine.place == other.place


def test_a_guest_elsewhere_has_the_uplinks_of_the_stream(tmp_path):
    (tmp_path / "key").write_text("")
    given_text = {
        "server": "esxi.example",
        "disk": "[datastore1] images/guest.vmdk",
        "channel": {"key": str(tmp_path / "key"), "host_key": "ssh-ed25519 AAAA"},
        "uplinks": {"s1": {"ingress": "vmnic2", "egress": "vmnic3"}},
    }
    direct = [replace(path, ingress=None, egress=None) for path in PATHS]
    Guest(Esxi(EsxiOptions.model_validate(given_text))).check(direct)
    with pytest.raises(UsageError, match="stream back: uplinks must name .*{s1: {ingress: vmnic2"):
        Guest(Esxi(EsxiOptions.model_validate({**given_text, "uplinks": {}}))).check(direct[1:] + direct[:1])


def test_rings_are_at_the_uut_s_end_of_both_links():
    links = [{**link.model_dump(mode="json", exclude_none=True), "receive": "napi"} for link in PAIR.links]
    lab = both_ways(FORTH, BACK, links=links)
    paths = stream_paths(lab)
    assert [path.receive for path in paths] == ["napi", "napi"]
    rings = wanted_rings(lab, paths, lambda _: range(6))
    assert [(ring.stream, ring.nic.interface, ring.cpus) for ring in rings] == [
        ("s1", "nb-in1", (4,)),
        ("back", "nb-out1", (5,)),
    ]


def test_without_a_uut_both_ways_are_over_one_link():
    direct = loopback(PAIR, cabled=False)
    assert [link.ends for link in direct.links] == [("source/tx1", "sink/rx1")]
    forth, back = stream_paths(direct)
    assert (back.source, back.sink) == (forth.sink, forth.source)


def test_of_flush_frames_a_capture_has_its_own_sink_s_only():
    forth, _ = PATHS
    *_, expression = tcpdump_command("nb-rx1", (), incoming(path=forth), None)
    assert f"not (ether[4:2] = 0x000f and not ether src {forth.sink.mac})" in expression


def evidence(*, sink_sends: bool) -> StreamObservation:
    """Evidence of a stream of 1,000 frames that all arrived, over NICs with 700 frames of another direction."""
    return StreamObservation(
        path=PATHS[0],
        traffic=stream_traffic(),
        sent=Sent(1000, 0, 1.0, 1, 2, 1, 0.0),
        received=received(1000),
        nics={
            "source": nic_delta(tx=1000, rx=700),
            "ingress": nic_delta(rx=1000, tx=700),
            "egress": nic_delta(tx=1000, rx=700),
            "sink": nic_delta(rx=1000, tx=700),
        },
        points=BY_KIND[PointKind.BRIDGE],
        sink_sends=sink_sends,
    )


def test_frames_of_the_other_direction_are_no_one_s_foreign_frames():
    counts = account(evidence(sink_sends=True))
    assert (counts.foreign_frames, counts.unexplained_frames, counts.lost_frames) == (0, 0, 0)
    assert counts.lost_at == ()


def test_what_a_sink_s_nic_sends_is_foreign_where_no_source_is():
    assert account(evidence(sink_sends=False)).foreign_frames == 700


def test_an_account_reports_whose_way_back_it_is_of():
    given = replace(evidence(sink_sends=True), path=PATHS[1])
    assert account(given).reverse_of == "s1"
    assert account(evidence(sink_sends=True)).reverse_of == ""


OTHER_WAY = {"drop": {"k": 7, "n": 100}, "reverse": {"drop": {"k": 1, "n": 3, "at": "egress"}}}


def test_a_reference_drops_something_else_of_ways_back():
    tables = [
        step.command
        for step in Reference(ReferenceOptions.model_validate(OTHER_WAY)).plan(Assignment("u", PATHS)).steps
        if "nft" in step.command
    ]
    bridge, device = tables
    assert "numgen inc mod 100 < 7 counter name nb-s1 drop" in bridge
    assert "nb-back" not in bridge
    assert 'hook egress device "nb-in1"' in device
    assert "numgen inc mod 3 < 1 counter name nb-back drop" in device
    assert "nb-s1" not in device


def test_a_delay_of_ways_back_is_at_their_egress():
    options = {"drop": {"k": 0, "n": 1}, "reverse": {"drop": {"k": 0, "n": 1}, "delay": "5ms"}}
    plan = Reference(ReferenceOptions.model_validate(options)).plan(Assignment("u", PATHS))
    (delay,) = (step.command for step in plan.steps if "netem" in step.command)
    assert "dev nb-in1" in delay
    assert "netem" in plan.needs


def test_a_forwarder_does_something_else_to_ways_back():
    options = ForwarderOptions.model_validate({"duplicate": {"every": 10}, "reverse": {"foreign": {"every": 20}}})
    forth, back = (step.command for step in Forwarder(options).plan(Assignment("u", PATHS)).steps)
    assert '"duplicate":{"every":10}' in forth
    assert '"foreign":{"every":20}' in back
    assert "reverse" not in forth + back
    assert "duplicate" not in back


@pytest.mark.parametrize(
    "uut",
    [
        {"name": "u", "kind": "reference", **OTHER_WAY},
        {"name": "u", "kind": "forwarder", "reverse": {"foreign": {"every": 20}}},
    ],
)
def test_what_is_about_ways_back_is_refused_without_any(uut):
    lab = topology(uuts=(uut,))
    with pytest.raises(UsageError, match="reverse: it is about the way back of a stream, and none of s1 is one"):
        resolve_guests(lab, lab.uuts[0])
    assert resolve_guests(both_ways(FORTH, BACK, uuts=[uut]), lab.uuts[0])


def test_a_self_test_of_both_ways_drops_different_parts_of_them():
    plain, both = references(1000), references(1000, both_ways=True)
    (added,) = [reference for reference in both if reference.options.reverse]
    assert len(both) == len(plain) + 1
    assert added.spec.name == "route-drops-7-of-100-back-13-of-997"


def trials(*losses: tuple[int, int]):
    """Trials that lost so many of 1000 frames in each direction."""
    return [
        trial(
            stream_counts("s1", received=1000 - forth),
            stream_counts("back", received=1000 - back, reverse_of="s1"),
            repetition=number,
        )
        for number, (forth, back) in enumerate(losses, start=1)
    ]


def test_directions_are_reported_apart():
    groups = group_trials(campaign(trials((0, 100), (0, 300))))
    forth, back = directions(groups)
    assert [(direction.stream, direction.reverse_of) for direction in (forth, back)] == [("s1", ""), ("back", "s1")]
    assert forth.loss_ratio is not None
    assert back.loss_ratio is not None
    assert (forth.loss_ratio.mean, back.loss_ratio.mean) == (0.0, 0.2)
    assert forth.loss_ratio.half_width != back.loss_ratio.half_width
    assert groups[0].loss_ratio is not None
    assert groups[0].loss_ratio.mean == 0.1


def test_the_page_has_directions_where_there_are_two():
    (table,) = tables_of("directions", ReportModel.of(campaign(trials((0, 100)))))
    texts = [cell.text for row in table.rows for cell in row.cells]
    assert "back, reverse of s1" in texts
    assert "10.000 %" in texts
    assert tables_of("directions", ReportModel.of(campaign([trial(stream_counts())]))) == []
