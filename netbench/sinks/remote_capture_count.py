"""Counting of a capture on the host where it was made: only the counts are transferred.

python3 … -m netbench.sinks.remote_capture_count FILE        one line of JSON on stdin, one on stdout
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from netbench.capture.capture_counts import CaptureCounts, Expected
from netbench.capture.counting import analyze_capture
from netbench.errors import UsageError
from netbench.model.received import Received
from netbench.model.traffic import Sent, Traffic, traffic_of
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


def question(expected: Expected, sent: Sent, traffic: Traffic) -> str:
    """Return the line of JSON that such a process reads."""
    return json.dumps({"expected": asdict(expected), "sent": asdict(sent), "traffic": asdict(traffic)}) + "\n"


def main() -> None:
    """Read the request on stdin and print the counts."""
    request: Mapping[str, Any] = json.loads(sys.stdin.readline())
    traffic = traffic_of(request["traffic"])
    expected = Expected(**{**request["expected"], "frame_size": traffic.frame_size})
    print(json.dumps(asdict(count(Path(sys.argv[1]), expected, Sent(**request["sent"]), traffic))))


if __name__ == "__main__":
    main()
