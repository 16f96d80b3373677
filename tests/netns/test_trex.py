"""The generator trex with a real server, of the package whose directory NETBENCH_TREX names."""

import re
from pathlib import Path
from tempfile import gettempdir

import dpkt
import pytest

from netbench.generators.trex.trex import Trex
from netbench.generators.trex.trex_servers import TrexOptions
from netbench.model.frame_size import IMIX
from netbench.model.traffic import Sent
from tests.netns.test_afpacket import Capture, lab, run, traffic
from tests.trex import NO_PACKAGE, PACKAGE

pytestmark = [pytest.mark.root, pytest.mark.skipif(bool(NO_PACKAGE), reason=NO_PACKAGE)]

__all__ = ["lab"]  # a fixture


@pytest.fixture
def source(lab):
    """A source on tx0 with its own server, which leaves nothing behind."""
    before = set(Path(gettempdir()).glob("netbench-trex-*"))
    source = Trex(TrexOptions(path=PACKAGE)).source()
    lab.do("ip link set lo up")
    source.open(lab, "tx0", ())
    assert re.match(r"trex \(TRex v\d+\.\d+", str(source.identity()))
    yield source
    source.close()
    assert set(Path(gettempdir()).glob("netbench-trex-*")) == before
    assert not [line for line in lab.run(["ps", "-eo", "args"]).stdout.splitlines() if line.startswith(PACKAGE)]


def captured(lab, path, source, what, frame_size=64) -> tuple[Sent, list[int], set[int]]:
    """The frames sent, the sequence numbers received, and the lengths of these frames."""
    capture = Capture(lab, path)
    sent = run(source, what)
    assert sent.error == ""
    found = capture.stop(sent.frames, frame_size)
    return sent, found.sequences, found.lengths


@pytest.mark.parametrize("fps", [1_000.0, 20_000.0])
def test_exactly_the_frames_of_the_load_arrive_in_order(lab, source, tmp_path, fps):
    for trial in range(2):
        sent, numbers, lengths = captured(lab, tmp_path / f"{trial}.pcap", source, traffic(fps, 1.0))
        assert (sent.frames, lengths) == (fps, {60})
        assert numbers == list(range(int(fps)))
        assert sent.duration_s == pytest.approx(1.0, abs=0.3)


def test_the_first_frames_come_at_the_rate_of_all(lab, source, tmp_path):
    path = tmp_path / "rx0.pcap"
    captured(lab, path, source, traffic(20_000.0, 1.0))
    with path.open("rb") as file:
        times = [at for at, _ in dpkt.pcap.Reader(file)]
    # The first 200 are due within 10 ms. One that has to catch up with 10 ms or more sends them all at once.
    assert times[199] - times[0] > (times[-1] - times[0]) / 200


def test_flows_take_turns(lab, source, tmp_path):
    what = traffic(1_000.0, 0.5, flows=7)
    capture = Capture(lab, tmp_path / "rx0.pcap")
    assert run(source, what).frames == 500
    ports = capture.stop(500, 64).ports
    assert ports[:7] * 72 == [*ports, *ports[3:7]]
    assert len(set(ports)) == 7


def test_frames_of_a_mix_have_its_sizes_in_its_order(lab, source, tmp_path):
    before = bytes_received(lab)
    # Of seven in twelve 60 bytes are captured, of the others 80.
    _, numbers, _ = captured(lab, tmp_path / "rx0.pcap", source, traffic(2_400.0, 1.0, IMIX), 72)
    assert numbers == list(range(2_400))
    assert bytes_received(lab) - before == 200 * sum(size - 4 for size in IMIX.genome)


def test_what_it_cannot_keep_up_with_is_stopped_and_counted(lab, source):
    before = lab.tx("packets")
    sent = run(source, traffic(5_000_000.0, 1.0))
    assert sent.error == ""
    assert sent.frames == lab.tx("packets") - before < 5_000_000
    assert 1.5 <= sent.duration_s < 3


def bytes_received(lab) -> int:
    return int(lab.read("/sys/class/net/rx0/statistics/rx_bytes"))
