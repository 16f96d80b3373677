"""A source that sends one frame after the other through a plain socket, from a Python process on its host."""

import json
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict

from pydantic import BaseModel

from netbench.generators.base import Generator, Source
from netbench.generators.frames import Frames
from netbench.hosts.base import Host, Process
from netbench.model.traffic import Sent, Traffic


class PlainOptions(BaseModel, extra="forbid"):
    """None."""


class Plain(Generator):
    """One frame after the other through a plain socket."""

    Options = PlainOptions

    def __init__(self, options: PlainOptions) -> None:
        """Nothing to choose."""

    def source(self) -> "PlainSource":
        return PlainSource()


class PlainSource(Source):
    """One process for each trial, which waits for the time to begin."""

    process: Process | None = None

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        self.host, self.interface = host, interface

    def prepare(self, traffic: Traffic) -> None:
        self.close()
        self.process = self.host.spawn([sys.executable, "-m", __name__, self.interface, json.dumps(asdict(traffic))])
        assert self.process.stdout
        self.process.stdout.readline()  # it is ready, or it has ended

    def start(self, at_monotonic_ns: int) -> None:
        assert self.process
        assert self.process.stdin
        self.process.stdin.write(f"{at_monotonic_ns}\n")
        self.process.stdin.flush()

    def wait(self, timeout_s: float) -> Sent:
        assert self.process
        said, complaint = self.process.communicate(timeout=timeout_s)
        if self.process.returncode:
            return Sent(0, 0, 0.0, None, None, 0, 0.0, error=f"the sending process failed: {complaint}")
        return Sent(**json.loads(said))

    def close(self) -> None:
        if self.process:
            self.process.kill()
            self.process.communicate()
            self.process = None


def main() -> None:
    """Send what the command line says, from the time on that comes in through stdin."""
    traffic = Traffic(**json.loads(sys.argv[2]))
    fps, block = traffic.fps or 1000.0, Frames(traffic, 1)
    count, late_ns = round(fps * traffic.duration_s), 0
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
        sender.bind((sys.argv[1], 0))
        print("ready", flush=True)
        begin_ns = int(sys.stdin.readline())
        first_ns = time.time_ns() + begin_ns - time.monotonic_ns()
        for number in range(count):
            due_ns = begin_ns + round(number * 1e9 / fps)
            while (now_ns := time.monotonic_ns()) < due_ns:
                pass
            late_ns = max(late_ns, now_ns - due_ns)
            block.stamp(number, 1, time.time_ns())
            sender.send(block.buffer.data)
    duration_s = max(time.monotonic_ns() - begin_ns, round(count * 1e9 / fps)) / 1e9
    print(json.dumps(asdict(Sent(count, 0, duration_s, first_ns, time.time_ns(), 1, late_ns / 1e9))))


if __name__ == "__main__":
    main()
