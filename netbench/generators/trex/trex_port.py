"""One port of a TRex server, acquired for a campaign: load streams, start, stop, release."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from lbr_trex_client.interactive.trex.stl.api import STLClient, TRexError

from netbench.errors import MissingError, TestbedError
from netbench.generators.trex.owner_name import is_left_behind
from netbench.generators.trex.trex_session import TrexSession, brief

_ONE_CORE = STLClient.CORE_MASK_SINGLE


class TrexPort:
    """A port that this process owns until close(); never taken by force from an owner that may be active."""

    def __init__(self, session: TrexSession, number: int) -> None:
        """Acquire the port; MissingError when the server has no such port, or it has another owner.

        The port keeps its settings. The client's `reset()` would take it from any owner, and disable promiscuous mode.
        """
        self._session, self._client, self.number = session, session.client, number
        known = self._client.get_all_ports()
        if number not in known:
            raise MissingError(f"there is no {self}: it has {', '.join(map(str, known))}")
        owner = str(session.asked("get_port_status", self._which)["owner"])
        try:
            self._client.acquire(self._ports, force=is_left_behind(owner))
        except TRexError as error:
            raise MissingError(
                f"{self} is somebody else's: {brief(error)}. Have its owner release it; if nobody is at work "
                f"there, `acquire --force -p {number}` and `release -p {number}` in trex-console do"
            ) from error
        try:
            with session.told(f"{self} cannot be cleared of what is on it"):
                self._clear()  # streams left by a killed netbench may still be sending
        except BaseException:  # Ctrl-C too: no port stays acquired
            self.close()
            raise

    def __str__(self) -> str:
        return f"port {self.number} of {self._session.address}"

    def load(self, streams: Sequence[Any]) -> None:
        """Replace the streams of the port by these, without starting them."""
        with self._session.told(f"{self} cannot take the streams"):
            self._clear()
            self._client.add_streams(list(streams), self._ports)

    def start(self, limit_s: float) -> None:
        """Start the streams; a server without a client stops by itself after about `limit_s` seconds."""
        with self._session.told(f"{self} does not start"):
            self._client.start(self._ports, duration=limit_s, core_mask=_ONE_CORE)

    def is_sending(self) -> bool:
        """Return whether streams are still sending; the server updates this every few milliseconds."""
        state = self._session.asked("get_port_status", self._which)["state"]
        return str(state) in ("TX", "PAUSE")

    def stop(self) -> None:
        """Stop sending at once; arriving frames are still counted.

        The client's own stop() would make the server ignore frames that are still on their way (remove_rx_filters).
        """
        with self._session.told(f"{self} does not stop"):
            self._halt()

    def close(self) -> None:
        """Stop, remove all streams, release the port; each step is tried even if an earlier one fails."""
        steps: tuple[Callable[[], object], ...] = (
            self._clear,
            lambda: self._client.release(self._ports),
        )
        for step in steps:
            with suppress(TRexError, TestbedError), self._session.turn:  # the next step may still succeed
                step()

    def _clear(self) -> None:
        self._halt()
        self._client.remove_all_streams(self._ports)

    def _halt(self) -> None:
        # Forced where the server still sends: its event may not have reached the client yet.
        answer = self._client.ports[self.number].stop(force=self.is_sending())
        if not answer:
            raise TRexError(answer.err())

    @property
    def _ports(self) -> list[int]:
        return [self.number]

    @property
    def _which(self) -> dict[str, object]:
        return {"port_id": self.number, "profile_id": "*", "block": False}
