"""A capture counted on the host that it was made on: only what it says travels.

python3 … -m netbench.sinks.count_there FILE        one line of JSON on stdin, one on stdout
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from netbench.capture.captured import CaptureCounts, Expected
from netbench.capture.counting import analyze_capture
from netbench.errors import UsageError
from netbench.model.received import Received
from netbench.model.traffic import Sent, Traffic, traffic_of
from netbench.sinks.from_capture import received_of


@dataclass(frozen=True, slots=True)
class InCapture:
    """What a capture holds of one stream: `frames` in all; `is_whole`: neither cut nor damaged. `error`: no capture."""

    received: Received
    frames: int = 0
    is_whole: bool = False
    error: str = ""


def count(file: Path, expected: Expected, sent: Sent, traffic: Traffic) -> InCapture:
    """What a capture file says."""
    try:
        counts = analyze_capture(file, [expected])
    except UsageError as error:
        return InCapture(Received(), error=str(error))
    return InCapture(received_of(counts, sent, traffic), counts.frames, is_whole(counts))


def is_whole(counts: CaptureCounts) -> bool:
    """Whether all of a capture could be read, and nothing of it was cut."""
    return not (counts.truncated or counts.damage or counts.odd_length_frames)


def question(expected: Expected, sent: Sent, traffic: Traffic) -> str:
    """What such a process reads."""
    return json.dumps({"expected": asdict(expected), "sent": asdict(sent), "traffic": asdict(traffic)}) + "\n"


def main() -> None:
    """Answer the question on stdin."""
    asked: Mapping[str, Any] = json.loads(sys.stdin.readline())
    traffic = traffic_of(asked["traffic"])
    expected = Expected(**{**asked["expected"], "frame_size": traffic.frame_size})
    print(json.dumps(asdict(count(Path(sys.argv[1]), expected, Sent(**asked["sent"]), traffic))))


if __name__ == "__main__":
    main()
