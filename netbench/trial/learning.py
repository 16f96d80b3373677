"""Learning frames: which ones a sink sends before a trial, and when the last ones were sent.

Bridges outside netbench's control forget addresses after 300 s by default (IEEE 802.1Q, section 8.8.3), and sooner when
the spanning tree changes.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256

from netbench.model.frame_template import ExpectedHeaders
from netbench.model.paths import InterfaceRef, StreamPath
from netbench.sinks.flush import flush_frame, padded

_FEW_FRAMES = 100  # of so many, sending takes 10 ms: they are sent before each trial
_REFRESH_NS = 60 * 10**9


class LearningSchedule:
    """The times at which many learning frames were last sent on a testbed, by stream and headers.

    It also has the NICs that learning frames do not reach.
    """

    def __init__(self) -> None:
        self._sent_ns: dict[tuple[str, bytes], int] = {}
        self._unreached: set[InterfaceRef] = set()

    def forget(self) -> None:
        """Send all learning frames again before the next trial: links may have been down."""
        self._sent_ns.clear()
        self._unreached.clear()

    def arrive_at(self, place: InterfaceRef) -> bool:
        """Return whether learning frames reach a NIC, by the trials so far."""
        return place not in self._unreached

    def never_arrive_at(self, places: Iterable[InterfaceRef]) -> None:
        """Record NICs that learning frames have not reached."""
        self._unreached.update(places)

    def due_frames(
        self, path: StreamPath, headers: ExpectedHeaders | None, now_ns: int, *, at_once: bool = False
    ) -> Sequence[bytes]:
        """Return the learning frames that the sink of a path is to send now, without FCS.

        `headers` are those of a described packet; None: plain frames. Few frames are always due. Many frames are due if
        they were not sent within 60 s of CLOCK_MONOTONIC, `now_ns`, or with `at_once`.
        """
        if headers is None:
            return [flush_frame(path.sink.mac, path.source.mac)]
        from netbench.packets.learning import learning_headers  # noqa: PLC0415 - loads numpy

        found = learning_headers(headers, path.source.mac, path.sink.mac)
        if len(found) > _FEW_FRAMES:
            key = path.name, sha256(b"".join(found)).digest()
            sent_ns = self._sent_ns.get(key)
            if not at_once and sent_ns is not None and now_ns - sent_ns < _REFRESH_NS:
                return []
            self._sent_ns[key] = now_ns
        return [padded(header) for header in found]
