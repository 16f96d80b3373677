"""Counting of a capture on the host where it was made: only the counts are transferred.

python3 … -m netbench.sinks.remote_capture_count        reads a request() per line, and replies with the InCapture

The process lives as long as the sink is open: on a slow host, loading numpy takes seconds.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

from netbench.capture.capture_counts import CaptureCounts, Expected
from netbench.capture.counting import analyze_capture
from netbench.errors import UsageError
from netbench.hosts.worker_requests import Reply, Request, serve_requests
from netbench.model.received import Received
from netbench.model.traffic import Sent, Traffic, traffic_data, traffic_of
from netbench.sinks.measuring_window import received_of


@dataclass(frozen=True, slots=True)
class InCapture:
    """The counts of one stream in a capture.

    `frames` is the number of all frames; `is_whole`: neither cut nor damaged; `error`: why nothing could be counted.
    """

    received: Received
    frames: int = 0
    is_whole: bool = False
    error: str = ""


def count(file: Path, expected: Expected, sent: Sent, traffic: Traffic) -> InCapture:
    """Return the counts of a capture file."""
    try:
        counts = analyze_capture(file, [expected])
    except UsageError as error:
        return InCapture(Received(), error=str(error))
    return InCapture(received_of(counts, sent, traffic), counts.frames, is_whole(counts))


def is_whole(counts: CaptureCounts) -> bool:
    """Return whether a capture could be read completely, and nothing of it was cut."""
    return not (counts.truncated or counts.damage or counts.odd_length_frames)


def request(file: Path, expected: Expected, sent: Sent, traffic: Traffic) -> Request:
    """Return the request to count these frames in a capture file of the process's host."""
    return {"file": str(file), "expected": expected.to_json(), "sent": asdict(sent), "traffic": traffic_data(traffic)}


def execute(request: Request) -> Reply:
    """Return the counts that a request() asks for."""
    traffic = traffic_of(request["traffic"])
    expected = Expected.from_json(request["expected"], traffic.frame_size)
    return asdict(count(Path(request["file"]), expected, Sent(**request["sent"]), traffic))


if __name__ == "__main__":
    serve_requests(execute)
