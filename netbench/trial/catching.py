"""The sinks of one trial: what they are told to catch, and what their captures hold."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from netbench.capture.captured import CaptureCounts
from netbench.capture.counting import analyze_capture
from netbench.capture.expected import Awaited, Expected
from netbench.capture.live import LiveCapture
from netbench.errors import UsageError
from netbench.model.paths import StreamPath
from netbench.model.profile import Profile
from netbench.model.traffic import Sent, Traffic
from netbench.sinks.base import Arrived, Catch
from netbench.sinks.room import capture_bytes, shortage
from netbench.trial.setup import Lane

_ARM_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Caught:
    """What came of one stream; `counts` None without a complete capture: part of a count would look like loss."""

    arrived: Arrived
    counts: CaptureCounts | None


def is_heard_live(path: StreamPath, profile: Profile) -> bool:
    """Whether captures of a stream are counted while they are made, and never written to a disk.

    Both ends must be on this machine: by its clock, frames of the trial are told from late ones of earlier trials
    before the source says when it sent.
    """
    return profile.keep_captures == "none" and path.source.machine is None and path.sink.machine is None


class Catching:
    """The sinks of some lanes, in one trial that began at `started_ns` (CLOCK_REALTIME).

    Order of calls: arm(); armed(); stop(); then caught() for each lane.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        traffic: Mapping[str, Traffic],
        profile: Profile,
        files: Mapping[str, Path],
        started_ns: int,
    ) -> None:
        """`traffic` and `files`, the captures, are by stream."""
        self._lanes = lanes
        self._traffic = traffic
        self._files = files
        self._profile = profile
        self._live = {
            lane.path.name: LiveCapture(_awaited(lane, traffic[lane.path.name], started_ns))
            for lane in lanes
            if is_heard_live(lane.path, profile)
        }
        self._shortage = ""
        self._armed = False

    def arm(self) -> None:
        """Have all sinks begin to listen, or none of them when the disk has too little room; returns at once."""
        self._shortage = shortage(self._sizes())
        if self._shortage:
            return
        for lane in self._lanes:
            name, traffic = lane.path.name, self._traffic[lane.path.name]
            lane.sink.arm(
                Catch(
                    traffic.src_ip,
                    traffic.dst_ip,
                    traffic.fps,
                    self._profile.snap_length,
                    self._files[name],
                    self._live.get(name),
                    len(self._lanes),
                )
            )

    def armed(self) -> bool:
        """Return True once all of them listen, False when one does not: nothing must be sent then."""
        self._armed = not self._shortage and all(lane.sink.armed(_ARM_LIMIT_S) for lane in self._lanes)
        return self._armed

    def stop(self, limit_s: float) -> dict[str, Arrived]:
        """What the sinks say, by stream, once what has arrived so far is in the captures, which may take `limit_s`."""
        if self._shortage:
            return {name: _refused(file, self._shortage) for name, file in self._files.items()}
        if self._armed:
            for lane in self._lanes:
                lane.sink.flush(limit_s)
        return {lane.path.name: lane.sink.stop() for lane in self._lanes}

    def caught(self, path: StreamPath, sent: Sent, arrived: Arrived) -> Caught:
        """What the capture of one of the streams holds."""
        if arrived.error or sent.first_ns is None or sent.last_ns is None:
            return Caught(arrived, None)
        expected = Expected(
            stream=path.name,
            src_ip=path.src_ip,
            dst_ip=path.dst_ip,
            frame_size=self._traffic[path.name].frame_size,
            sent_frames=sent.frames,
            first_sequence=sent.first_sequence,
            sent_from_ns=sent.first_ns,
            sent_until_ns=sent.last_ns,
            stamped=sent.stamped,
            stamped_early=sent.stamped_early,
        )
        try:
            if arrived.heard:
                counts = self._live[path.name].counts(expected)
            else:
                counts = analyze_capture(arrived.capture, [expected])
        except UsageError as error:
            return Caught(replace(arrived, error=str(error)), None)
        whole = not (counts.truncated or counts.damage or counts.odd_length_frames or counts.unknown_blocks)
        return Caught(arrived, counts if whole and counts.frames == arrived.captured_frames else None)

    def _sizes(self) -> dict[Path, int]:
        """The sizes of the files that will be written, as far as they are known."""
        sizes = {}
        for name, file in self._files.items():
            traffic = self._traffic[name]
            if name not in self._live and traffic.frames is not None:
                sizes[file] = capture_bytes(traffic.frames, traffic.frame_size, self._profile.snap_length)
        return sizes


def _awaited(lane: Lane, traffic: Traffic, started_ns: int) -> Awaited:
    return Awaited(
        stream=lane.path.name,
        src_ip=traffic.src_ip,
        dst_ip=traffic.dst_ip,
        frame_size=traffic.frame_size,
        not_before_ns=started_ns,
        **asdict(lane.source.stamps(traffic)),
    )


def _refused(file: Path, shortage: str) -> Arrived:
    return Arrived(file, None, None, None, 0, flushed=False, error=shortage, disk_full=True, shortage=shortage)
