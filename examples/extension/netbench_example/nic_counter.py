"""A sink that reads its NIC's own counter: at any rate and at no cost, but it cannot tell whose frames came."""

import json
from collections.abc import Sequence

from netbench.hosts.base import Host, kernel_of, run_checked
from netbench.model.received import Received
from netbench.model.tester import Identity
from netbench.model.traffic import Sent
from netbench.sinks.base import Incoming, Sink, SinkKind


class NicCounter(SinkKind):
    """The NIC's own counter of received frames, from any sender."""

    def sink(self) -> "NicCounterSink":
        return NicCounterSink()


class NicCounterSink(Sink):
    """The counter of one NIC, read before and after each trial."""

    kernel = ""

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        self.host, self.interface, self.kernel = host, interface, kernel_of(host)

    def identity(self) -> Identity:
        return Identity(version=self.kernel)  # which counts; all else is as usual

    def arm(self, incoming: Incoming) -> None:
        self.before = self.count()

    def stop(self, limit_s: float) -> None:
        self.after = self.count()

    def received(self, sent: Sent) -> Received:
        return Received(frames=self.after - self.before, no_delay="a NIC's counter has no times")

    def count(self) -> int:
        """Frames received since the NIC was made."""
        words = run_checked(self.host, ["ip", "-json", "-statistics", "link", "show", "dev", self.interface])
        return int(json.loads(words)[0]["stats64"]["rx"]["packets"])
