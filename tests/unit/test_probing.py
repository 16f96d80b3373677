"""Foreign paths: probes check whether they are ready, before the first trial and after a silent one."""

from dataclasses import dataclass, field, replace

import pytest

from netbench.errors import TestbedError
from netbench.model.packet import Packet
from netbench.model.packet_description import parse_packet
from netbench.model.stream_paths import stream_paths
from netbench.model.traffic import Traffic
from netbench.model.verdict import ReasonKind
from netbench.trial.probing import await_ways
from netbench.trial.run import run_trial
from netbench.trial.sources_and_sinks import Recording
from tests.unit.fakes import Behaviour, FakeClock, FakeHost, FakeSetup, fake_ports
from tests.unit.inputs import planned_trial, profile, topology

SOURCE, SINK = "020000000001", "020000000002"
PATHS = [
    replace(
        path,
        source=replace(path.source, mac=bytes.fromhex(SOURCE).hex(":")),
        sink=replace(path.sink, mac=bytes.fromhex(SINK).hex(":")),
    )
    for path in stream_paths(fake_ports())
]
NOTHING = Behaviour(lost_in_uut=3)  # of a probe


class Changing(FakeClock):
    """A clock that changes a stream's behaviour at some times."""

    def __init__(self, fake: FakeSetup, behaviours: dict[float, Behaviour]) -> None:
        super().__init__()
        self.fake, self.behaviours = fake, behaviours

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        for at_s in [due_s for due_s in self.behaviours if due_s <= self.now_s]:
            self.fake.wires["s1"].behaviour = self.behaviours.pop(at_s)

    @property
    def now_s(self) -> float:
        return self.monotonic_ns() / 1e9


@pytest.fixture
def wait():
    """Wait for a path whose behaviour changes at some times; return how long that took, and the log."""

    def run(first: Behaviour, changes: dict[float, Behaviour], limit_s: float = 60.0) -> tuple[float, list[str]]:
        fake = FakeSetup.on(PATHS, s1=first)
        clock = Changing(fake, changes)
        setup = replace(fake.setup, clock=clock)
        await_ways(setup, setup.guests["victim"], list(setup.endpoints.values()), limit_s)
        return clock.now_s, fake.log

    return run


def test_a_way_that_is_ready_takes_no_time_and_bridges_are_reported_where_the_sink_is(wait):
    took_s, log = wait(Behaviour(), {})
    assert took_s < 0.1
    first_of = {entry: log.index(entry) for entry in log}
    assert first_of[f"sink s1 learn {SOURCE}{SINK}88b5"] < first_of["source s1 start"]


def test_a_port_that_listens_for_half_a_minute_is_waited_for(wait):
    took_s, _ = wait(NOTHING, {30.0: Behaviour()})
    assert 30.0 < took_s < 32.0


def test_a_way_that_is_never_ready_is_given_up_in_words(wait):
    with pytest.raises(TestbedError, match=r"stream s1: not ready: of \d+ probes that eth1 sent in 5 s none arr"):
        wait(NOTHING, {}, 5.0)


def test_probes_that_arrive_changed_are_described_as_soon_as_two_in_a_row_did(monkeypatch):
    looks: list[object] = []

    class Seen:
        def __init__(self, host, path, traffic) -> None:
            looks.append((host, path.name, traffic.frame_size.only_size))

        def changes(self, sent) -> str:
            return "with VLAN 100, 68 bytes"

        def close(self) -> None:
            looks.append("closed")

    monkeypatch.setattr("netbench.trial.probing.Witness", Seen)
    fake, host = FakeSetup.on(PATHS, s1=NOTHING), FakeHost()
    endpoints = {name: replace(ends, sink_host=host) for name, ends in fake.setup.endpoints.items()}
    setup = replace(fake.setup, endpoints=endpoints)
    with pytest.raises(TestbedError) as raised:
        await_ways(setup, setup.guests["victim"], list(endpoints.values()), 60.0)
    assert str(raised.value) == (
        "stream s1: not ready: probes of 64 bytes arrived at eth2 with VLAN 100, 68 bytes; the sink counts only frames "
        "that arrive as they were sent: configure the UUT to send them so; or describe all packets, without plain, one "
        "of them with expect"
    )
    assert looks == [(host, "s1", 64), "closed"] * 2, "the first probe is not looked at"
    assert fake.log.count("source s1 start") == 3


@dataclass
class SeenProbes:
    """Captures of probes that arrive changed; `traffic` is that of the probes, in their order."""

    traffic: list[Traffic] = field(default_factory=list)

    def __call__(self, host, path, traffic) -> "SeenProbes":
        self.traffic.append(traffic)
        return self

    def changes(self, sent) -> str:
        return "with 99 bytes, EtherType 0x0800"

    def close(self) -> None:
        pass


def expecting(headers: str, expect: str | None, name: str = "mine") -> Packet:
    found = parse_packet({"name": name, "headers": headers, "expect": expect})
    assert found is not None
    return found


NAT = expecting("Ether()/IP(src='10.0.0.1')/UDP()", "Ether(src=any, dst=any)/IP(src='192.0.2.1', ttl=any)/UDP()", "nat")
TUNNEL = expecting("vxlan", "Ether()/IP()/UDP()", "tunnel")
AS_SENT = expecting("vlan", None, "vlan")


@pytest.mark.parametrize(
    ("packets", "own", "sends_plain", "probe", "size", "message"),
    [
        ([], None, True, None, 64, "or describe all packets, without plain, one of them with expect"),
        ([NAT], None, True, None, 64, "or describe all packets, without plain, one of them with expect"),
        ([AS_SENT], None, False, None, 64, "configure the UUT to send them so; or describe"),
        (
            [AS_SENT, NAT],
            None,
            False,
            NAT,
            64,
            "probes of packet nat (Ether/IP/UDP) arrived at eth2 with 99 bytes, EtherType 0x0800; the sink expects "
            "Ether/IP/UDP: configure the UUT to send this, or correct expect",
        ),
        (
            [TUNNEL],
            None,
            False,
            TUNNEL,
            112,
            "probes of packet tunnel (Ether/IP/UDP/VXLAN/Ether/IP/UDP) arrived at eth2 with 99 bytes, EtherType 0x0800"
            "; the sink expects Ether/IP/UDP: ",
        ),
        ([AS_SENT], NAT, True, NAT, 64, "probes of packet nat "),
        ([NAT], AS_SENT, False, None, 64, "configure the UUT to send them so; or describe"),
    ],
)
def test_probes_are_the_packet_whose_change_is_described(monkeypatch, packets, own, sends_plain, probe, size, message):
    seen = SeenProbes()
    monkeypatch.setattr("netbench.trial.probing.Witness", seen)
    paths = [replace(path, packet=own) for path in PATHS]
    fake, host = FakeSetup.on(paths, s1=NOTHING), FakeHost()
    endpoints = {name: replace(ends, sink_host=host) for name, ends in fake.setup.endpoints.items()}
    by_name = {packet.name: packet for packet in packets}
    setup = replace(fake.setup, endpoints=endpoints, packets=by_name, sends_plain=sends_plain)
    with pytest.raises(TestbedError) as raised:
        await_ways(setup, setup.guests["victim"], list(endpoints.values()), 60.0)
    assert message in str(raised.value)
    assert [(traffic.packet, traffic.frame_size.only_size) for traffic in seen.traffic] == [(probe, size)] * 2
    ready = FakeSetup.on(paths)
    ready_setup = replace(ready.setup, packets=by_name, sends_plain=sends_plain)
    await_ways(ready_setup, ready_setup.guests["victim"], list(ready.setup.endpoints.values()), 60.0)
    assert ready.log.count("source s1 start") == 1


def test_a_full_disk_is_reported_at_once(wait):
    with pytest.raises(TestbedError, match="^stream s1: not ready: no space left for /tmp/x; free some there"):
        wait(Behaviour(no_room="no space left for /tmp/x; free some there"), {})


def test_frames_that_come_later_than_a_probe_waits_are_waited_for_longer(wait):
    """A path is ready when its own probe has arrived: none is left on the way to disturb the first trial."""
    slow = replace(NOTHING, late=3)
    took_s, log = wait(NOTHING, {1.5: slow, 5.0: Behaviour()})
    assert 6.0 < took_s < 6.2
    assert log.count("source s1 start") == 4  # waited for 1, 1 and, after 2 s of silence, 2 s; the last one came


def test_a_link_without_carrier_is_named():
    fake = FakeSetup.on(PATHS)
    place = PATHS[0].sink.place
    fake.nics.counters[place] = replace(fake.nics.counters[place], up=False)
    with pytest.raises(TestbedError, match=r"^eth2: no carrier after 3 s; check the cable"):
        await_ways(fake.setup, fake.setup.guests["victim"], list(fake.setup.endpoints.values()), 3.0)
    assert "source s1 start" not in fake.log


@pytest.mark.parametrize(
    ("afterwards", "why"),
    [
        (Behaviour(), ""),  # the probe comes out: the UUT lost the frames
        (NOTHING, "stream s1: not ready any more: nothing arrived, and neither do probes"),
        (replace(NOTHING, late=1000), "come out more than 5 s late; raise drain_limit"),
    ],
)
def test_a_trial_of_which_nothing_arrived_is_probed_after(tmp_path, afterwards, why):
    fake = FakeSetup.on(PATHS, s1=Behaviour(lost_in_uut=1000))
    setup = replace(fake.setup, clock=Changing(fake, {2.0: afterwards}))
    result = run_trial(setup, planned_trial(fake_ports(), profile(), ("s1",)), Recording(tmp_path), 1)
    failed = [reason.detail for reason in result.reasons if reason.kind is ReasonKind.UUT_FAILED]
    assert [why in detail for detail in failed] == [True] * bool(why)
    assert result.streams[0].lost_frames == 1000


def test_what_netbench_made_itself_is_not_probed(tmp_path):
    fake = FakeSetup.on(stream_paths(topology(1)), s1=Behaviour(lost_in_uut=1000))
    run_trial(fake.setup, planned_trial(topology(1), profile(), ("s1",)), Recording(tmp_path), 1)
    assert fake.log.count("source s1 start") == 1
    assert not [entry for entry in fake.log if "learn" in entry]
