"""The kernel's own pktgen, on a real kernel: its reports are compared with that kernel and the captured frames."""

import re
import threading
from contextlib import ExitStack, suppress
from ipaddress import IPv4Address

import dpkt
import pytest
import scapy.contrib.mpls
import scapy.layers.all
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from netbench.errors import TestbedError
from netbench.generators.pktgen.parameters import PktGenOptions
from netbench.generators.pktgen.pktgen import PktGen
from netbench.model.verdict import ReasonKind, Verdict
from tests.netns.watching import wait_for
from tests.truth.test_packets import has_valid_checksums
from tests.unit.pktgen_kernel import MAX

pytestmark = pytest.mark.vm


def test_every_frame_is_accounted_for(lab, tmp_path):
    with lab.setup(tmp_path) as measure:
        for load, size in (("3000fps", 64), ("3000fps", 512), ("3000fps", 1518), ("max", 64), ("max", 1518)):
            before = lab.transmitted()
            measured = measure(load, size)
            (counts,) = measured.result.streams
            assert counts.sent.frames == lab.so_far() == lab.transmitted() - before > 500
            lost = sum(loss.frames for loss in counts.lost_at)
            assert counts.sent.frames == counts.received.frames + lost + counts.capture_dropped_frames
            assert (counts.unexplained_frames, counts.foreign_frames) == (0, 0)
            assert {frame.size for frame in measured.frames["s1"]} == {size}
            sent = range(1, counts.sent.frames + 1)
            if load == "max":
                assert len(set(measured.sequences)) == len(measured.sequences) == counts.received.frames
                assert set(measured.sequences) <= set(sent)
            else:
                assert measured.sequences == list(sent) == list(range(1, 601))
                assert measured.result.verdict is Verdict.VALID, measured.result.reasons


def test_loss_in_the_uut_is_exact_to_the_frame_and_flows_take_turns(lab, tmp_path):
    with lab.setup(tmp_path, uut="drops-7-of-100") as measure:
        measured = measure("10000fps", flows=1000)
    (counts,) = measured.result.streams
    assert (counts.sent.frames, counts.received.frames, counts.lost_frames) == (2000, 1860, 140)
    assert [(loss.place, loss.frames) for loss in counts.lost_at] == [("IP layer (nft drop rule)", 140)]
    assert (counts.unexplained_frames, measured.result.verdict) == (0, Verdict.VALID)
    assert measured.sequences == [number for number in range(1, 2001) if (number - 1) % 100 >= 7]
    assert (counts.received.loss_runs, counts.received.longest_loss_run) == (20, 7)
    ports = {frame.sequence: frame.src_port for frame in measured.frames["s1"]}
    first = ports[1008] - 8
    assert all(port == first + number % 1000 for number, port in ports.items())


FRAMES = 300
MAGIC = b"\xbe\x9b\xe9\x55"
# In this order: each packet has headers that the device must lose for a later one.
PACKETS: list[tuple[str, dict[str, tuple[object, int]]]] = [
    ("Ether()/Dot1Q(vlan=100,prio=5,dei=1)/IP()/UDP()", {}),
    ("Ether()/IPv6(tc=184)/UDP(sport=1234,dport=54)", {}),
    ("Ether()/Dot1Q(vlan=200,prio=3)/Dot1Q(vlan=100,dei=1)/IP(tos=4)/UDP()", {}),
    ("Ether()/MPLS(label=16,ttl=9)/MPLS(label=1048575,cos=5,ttl=255)/IP()/UDP()", {}),
    ("Ether()/Dot1Q(vlan=7)/Dot1Q(vlan=8)/IPv6(tc=1)/UDP()", {"UDP.sport": (5000, 7)}),
    ("Ether()/Dot1Q(vlan=4094)/IP()/UDP()", {"IP.src": ("198.18.77.250", 20), "UDP.sport": (5000, 7)}),
    ("Ether()/MPLS(label=1000,ttl=64)/IPv6()/UDP()", {}),
    (
        "Ether()/IP(src='198.18.77.1',tos=184)/UDP(sport=1234)",
        {"IP.dst": ("198.19.1.254", 3), "UDP.dport": (65_500, 35)},
    ),
    ("Ether()/IP(dst='198.19.77.2')/UDP(dport=5678)", {}),
]


def test_described_packets_arrive_as_described_and_leave_no_header_behind(lab, tmp_path):
    """The kernel's files do not show all headers of a device: every captured frame is dissected."""
    with lab.setup(tmp_path, packet="ipv6") as measure:
        for headers, vary in PACKETS:
            values = {field: {"from": first, "count": count} for field, (first, count) in vary.items()}
            packet = {"name": "described", "headers": headers} | ({"vary": values} if vary else {})
            measured = measure("1500fps", 128, packet=packet, snap_length=128)
            (counts,) = measured.result.streams
            assert (counts.sent.frames, counts.received.frames, counts.foreign_frames) == (FRAMES, FRAMES, 0), headers
            assert measured.result.verdict is Verdict.VALID, (headers, measured.result.reasons)
            found = counts.received.packet
            assert found is not None
            assert (found.changed, found.changed_frames, found.lossy_flows) == ((), 0, 0), headers
            assert found.reordered_in_flows == 0
            assert_as_described(measured.captures["s1"], headers, vary)
        measured = measure("1500fps", 64)
        assert (measured.result.verdict, measured.sequences) == (Verdict.VALID, list(range(1, FRAMES + 1)))
        assert {frame.src_port for frame in measured.frames["s1"]} == {9}


def assert_as_described(capture, headers, vary):
    """Compare every frame with its description by scapy; the first frame has the second value of a varying field."""
    described = eval(headers, {**vars(scapy.layers.all), **vars(scapy.contrib.mpls)})
    written = [(layer.name, dict(layer.fields)) for layer in described.iterpayloads()]
    with capture.open("rb") as file:
        frames = [frame for _, frame in dpkt.pcap.UniversalReader(file) if MAGIC in frame]
    assert len(frames) == FRAMES
    for number, frame in enumerate(frames, start=1):
        layers = [layer for layer in Ether(frame).iterpayloads() if not isinstance(layer, Raw)]
        assert [layer.name for layer in layers] == [name for name, _ in written]
        for layer, (_, fields) in zip(layers, written, strict=True):
            assert {name: layer.fields[name] for name in fields} == fields
        payload = bytes(layers[-1].payload)
        assert (payload[:4], int.from_bytes(payload[4:8])) == (MAGIC, number)
        for field, (first, count) in vary.items():
            layer, _, name = field.partition(".")
            value = getattr(next(one for one in layers if one.name == layer), name)
            assert int(IPv4Address(value)) == int(IPv4Address(first)) + number % count
        assert has_valid_checksums(frame), frame.hex()


def test_the_delay_of_the_path_comes_back_right(lab, tmp_path):
    """A frame waits up to 2 ms for its turn after it was stamped; that time must not be counted."""
    with lab.setup(tmp_path) as measure:
        for delay_ms in (1, 5, 20):
            netem = f"netem limit 10000 delay {delay_ms}ms"
            lab.do("uut", f"tc qdisc replace dev nb-out1 root {netem}")
            (counts,) = measure("500fps", duration="400ms").result.streams
            assert counts.received.frames == counts.sent.frames == 200
            assert counts.received.delay is not None
            assert counts.received.delay.median_ns == pytest.approx(delay_ms * 1e6, abs=0.9e6)
        lab.do("uut", "tc qdisc delete dev nb-out1 root")


def test_two_sources_in_two_namespaces_send_at_once(lab, tmp_path):
    with lab.setup(tmp_path, streams=2) as measure:
        before = [lab.transmitted(stream) for stream in (1, 2)]
        measured = measure("2000fps", duration="500ms")
        assert [lab.transmitted(stream) - base for stream, base in zip((1, 2), before, strict=True)] == [1000, 1000]
    one, other = measured.result.streams
    for counts in (one, other):
        assert (counts.sent.frames, counts.received.frames, counts.unexplained_frames) == (1000, 1000, 0)
        assert [frame.sequence for frame in measured.frames[counts.stream]] == list(range(1, 1001))
    assert max(one.sent.first_ns, other.sent.first_ns) < min(one.sent.last_ns, other.sent.last_ns)


def test_sources_of_one_namespace_and_thread_all_send_as_fast_as_they_can(lab):
    """Without precautions, this kernel would let only one of them send."""
    with ExitStack() as undone:
        host, generator = lab.host("source1"), PktGen(PktGenOptions(cpus=(0,)))
        sources = []
        for name in ("nb-one", "nb-two", "nb-three"):
            lab.do("source1", f"ip link add {name} up type veth peer name {name}-b")
            undone.callback(lab.do, "source1", f"ip link delete {name}")
            lab.do("source1", f"ip link set {name}-b up")
            source = generator.source()
            source.open(host, name, ())
            undone.callback(source.close)
            sources.append((name, source))
        before = {name: sent_by(lab, name) for name, _ in sources}
        for _, source in sources:
            source.prepare(MAX)
        for _, source in sources:
            source.start(0)
        sent = {name: source.wait(5.0) for name, source in sources}
        counted = {name: sent_by(lab, name) - before[name] for name in sent}
    assert {name: done.error for name, done in sent.items()} == dict.fromkeys(sent, "")
    # A single sender would leave the others nothing; how equal their turns are depends on the emulated CPU.
    assert min(done.frames for done in sent.values()) > 0.5 * max(done.frames for done in sent.values()) > 500
    assert all(done.frames <= counted[name] <= done.frames + 20 for name, done in sent.items()), "as the link counts"


def sent_by(lab, name):
    return int(lab.do("source1", f"cat /sys/class/net/{name}/statistics/tx_packets"))


def test_two_threads_of_one_source_are_counted_together(lab, tmp_path):
    with lab.setup(tmp_path, generator={"kind": "pktgen", "threads": 2}) as measure:
        before = lab.transmitted()
        (counts,) = measure("max").result.streams
        assert counts.sent.frames == lab.so_far() == lab.transmitted() - before
        lost = sum(loss.frames for loss in counts.lost_at)
        assert counts.sent.frames == counts.received.frames + lost + counts.capture_dropped_frames
        assert counts.unexplained_frames == 0
        assert counts.received.duplicates is None  # both threads count from 1
        paced = measure("3000fps")
        assert (paced.sequences, paced.result.verdict) == (list(range(1, 601)), Verdict.VALID)


@pytest.mark.parametrize("option", ["burst", "clone_skb"])
def test_copies_of_a_frame_are_refused_by_the_driver_in_clear_words(lab, option):
    source = PktGen(PktGenOptions.model_validate({option: 8})).source()
    with pytest.raises(TestbedError) as caught:
        source.open(lab.host("source1"), "nb-tx1", ())
    assert str(caught.value) == (
        f"pktgen rejects `{option} 8` > /proc/net/pktgen/nb-tx1@0: "
        "the driver of this interface cannot send one frame several times"
    )
    assert lab.do("source1", "ls /proc/net/pktgen").split() == ["kpktgend_0", "kpktgend_1", "pgctrl"]


WHEN_SENT = "/sys/class/net/nb-tx1/statistics/tx_packets"
SET = "(while [ $(cat {file}) -lt {frames} ]; do sleep 0.02; done; date -s @$(($(date +%s) + {seconds})))"


def test_a_clock_that_is_set_while_frames_are_sent_makes_an_invalid_trial(lab, tmp_path):
    """Forward or back: frames do not look like those of the stream, which must not count as loss."""
    with lab.setup(tmp_path) as measure:
        for seconds in (-3600, 3600):
            setting = SET.format(file=WHEN_SENT, frames=lab.transmitted() + 300, seconds=seconds)
            lab.host("source1").run(["sh", "-c", f"{setting} >/dev/null 2>&1 &"])
            result = measure("1000fps", duration="600ms").result
            assert result.verdict is Verdict.INVALID
            (failed,) = [reason for reason in result.reasons if reason.kind is ReasonKind.GENERATOR_FAILED]
            steps = re.findall("the clock of host source1, .*, was set by (.+) s", failed.detail)
            assert [float(step.replace(",", "")) for step in steps] == [pytest.approx(seconds, abs=2)], failed.detail
        result = measure("1000fps", duration="200ms").result
        assert (result.verdict, result.streams[0].received.frames) == (Verdict.VALID, 200)


def test_an_interface_that_goes_in_mid_trial_is_no_hang(lab, tmp_path):
    """The last test of this file: the interface that it removes does not come back."""

    def remove():
        wait_for(lambda: lab.so_far() > 100)
        lab.do("source1", "ip link delete nb-tx1")

    removal = threading.Thread(target=remove)
    # The other end of the pair went, too, and cannot be taken out of the bridge any more.
    with suppress(TestbedError), lab.setup(tmp_path) as measure:
        removal.start()
        result = measure("1000fps", duration="10s").result
        removal.join()
    reasons = {reason.kind.value: reason.detail for reason in result.reasons}
    # An interface goes down before it goes away, and pktgen's device with it.
    assert re.fullmatch(
        r"pktgen's device nb-tx1@0 is gone: its interface may have been removed|"
        r"pktgen sent only [\d,]+ of 10,000 frames: the link may have gone down",
        reasons["generator-failed"],
    )
    assert "link-changed" in reasons
    assert result.verdict is Verdict.INVALID
    assert lab.do("source1", "ls /proc/net/pktgen").split() == ["kpktgend_0", "kpktgend_1", "pgctrl"]
