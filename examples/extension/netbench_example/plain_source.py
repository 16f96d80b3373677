"""A source that sends one frame after the other through a plain socket, from a Python process on its host."""

import os
import socket
import time

from netbench.generators.base import Generator
from netbench.generators.frames import FrameBlock
from netbench.generators.source_worker import Worker, serve
from netbench.generators.worker_source import WorkerSource
from netbench.model.traffic import Sent, Traffic


class Plain(Generator):
    """One frame after the other through a plain socket."""

    def source(self) -> WorkerSource:
        return WorkerSource("plain", __name__)


class PlainWorker(Worker):
    """The part in the source's process; `serve` passes the campaign's requests to it."""

    def __init__(self, interface: str, *cpus: str) -> None:
        if cpus:
            os.sched_setaffinity(0, map(int, cpus))
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.bind((interface, 0))

    def prepare(self, traffic: Traffic) -> None:
        fps = traffic.fps or 1000.0
        self.frame, self.count, self.gap_ns = (
            FrameBlock(traffic, 1, self.template),
            round(fps * traffic.duration_s),
            1e9 / fps,
        )

    def send(self, at_monotonic_ns: int) -> Sent:
        first_ns, late_ns, sent = time.time_ns() - time.monotonic_ns() + at_monotonic_ns, 0, 0
        while sent < self.count and not self.halt.is_set():
            due_ns = at_monotonic_ns + round(sent * self.gap_ns)
            late_ns = max(late_ns, self.halt.wait_until(due_ns) - due_ns)
            self.frame.stamp(sent, 1, time.time_ns())
            self.socket.send(self.frame.buffer.data)
            sent += 1
        end_ns = max(time.monotonic_ns(), at_monotonic_ns + round(sent * self.gap_ns))
        took_s = (end_ns - at_monotonic_ns) / 1e9
        return Sent(sent, 0, took_s, first_ns, time.time_ns(), 1, late_ns / 1e9, self.halt.reason)


if __name__ == "__main__":
    serve(PlainWorker)
