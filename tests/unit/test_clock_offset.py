"""The clock that stamps a capture, found by flush frames as the program that sends them makes them."""

from collections.abc import Sequence

import pytest

from netbench.capture.counting import analyze_capture
from netbench.cli.analyze import analyze_command
from netbench.model.distributions import ClockOffset
from netbench.sinks import flush
from tests.unit.capture_files import FLUSH_MAC, START_NS, Frame, ethernet, pcap

CALL_NS, UNTIL_SEEN_NS = 5_000, 3_000


class Nic:
    """A packet socket that keeps the frames sent, and a clock that only sending moves."""

    def __init__(self, ahead_ns: int, seen_later: Sequence[int] = ()) -> None:
        """The capture's clock is `ahead_ns` ahead; it stamps the frames `seen_later` long after they were sent."""
        self.now_ns = START_NS
        self.captured: list[Frame] = []
        self._ahead_ns, self._seen_later = ahead_ns, seen_later

    def __enter__(self) -> "Nic":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def bind(self, address: tuple[str, int]) -> None:
        pass

    def getsockname(self) -> tuple[object, ...]:
        return ("nb-rx1", 0, 0, 1, bytes.fromhex("020000000009"))

    def send(self, frame: bytes) -> None:
        seen_ns = 10**9 if len(self.captured) in self._seen_later else UNTIL_SEEN_NS
        self.captured.append(Frame(bytes(frame), self.now_ns + seen_ns + self._ahead_ns))
        self.now_ns += CALL_NS


def pushed(monkeypatch: pytest.MonkeyPatch, nic: Nic, *counts: int) -> list[Frame]:
    monkeypatch.setattr("netbench.sinks.flush.socket.socket", lambda *_: nic)
    monkeypatch.setattr("netbench.sinks.flush.time.time_ns", lambda: nic.now_ns)
    for count in counts:
        flush.FlushSender("nb-rx1").send(count)
        nic.now_ns += 10**9
    return nic.captured


@pytest.mark.parametrize("ahead_ns", [0, 2_000_000, 300_000, -300_000, 20_000])
@pytest.mark.parametrize("counts", [(100,), (3, 97), (40, 1, 1)])
def test_the_offset_is_within_what_sending_a_frame_takes(monkeypatch, tmp_path, ahead_ns, counts):
    path = tmp_path / "c.pcap"
    path.write_bytes(pcap(pushed(monkeypatch, Nic(ahead_ns), *counts), nanoseconds=True))
    offset = analyze_capture(path).clock_offset
    assert offset == ClockOffset(ahead_ns + UNTIL_SEEN_NS - CALL_NS, ahead_ns + UNTIL_SEEN_NS)
    assert offset.differs is (ahead_ns != 0)
    assert offset.bound_ns == max(abs(offset.least_ns), abs(offset.most_ns))
    assert ("not stamped by the clock of the sink" in analyze_command(path, as_json=False)) is offset.differs


def test_frames_that_wait_in_the_nics_queue_are_no_other_clock(monkeypatch, tmp_path):
    path = tmp_path / "c.pcap"
    path.write_bytes(pcap(pushed(monkeypatch, Nic(0, range(10, 50)), 100), nanoseconds=True))
    offset = analyze_capture(path).clock_offset
    assert offset == ClockOffset(UNTIL_SEEN_NS - CALL_NS, UNTIL_SEEN_NS)


def test_frames_that_tell_too_little_tell_nothing(monkeypatch, tmp_path):
    path = tmp_path / "c.pcap"
    every_other = pushed(monkeypatch, Nic(0), 20)[::2]
    plain = Frame(ethernet(bytes(46), dst=FLUSH_MAC, ether_type=0x88B5))
    for frames in ([], [plain] * 9, every_other, [*every_other[:1], plain]):
        path.write_bytes(pcap(frames, nanoseconds=True))
        assert analyze_capture(path).clock_offset is None
