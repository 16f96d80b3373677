"""The messages exchanged with an agent, as the controller writes and reads them; `program.py` explains them."""

from dataclasses import dataclass

from netbench.hosts.agent.program import HEADER, LONGEST_BODY


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its kind (one byte), the number of what it is about, and its body."""

    kind: bytes
    number: int
    body: bytes

    def encode(self) -> bytes:
        """As it goes over the channel."""
        return HEADER.pack(self.kind, self.number, len(self.body)) + self.body


class Decoder:
    """Takes bytes as they come and gives whole messages."""

    def __init__(self) -> None:
        self._unread = bytearray()

    def take(self, data: bytes) -> None:
        """More bytes."""
        self._unread += data

    def messages(self) -> list[Message]:
        """The messages that have become complete; ValueError for one that is longer than any may be."""
        messages = []
        while len(self._unread) >= HEADER.size:
            kind, number, length = HEADER.unpack_from(self._unread)
            if length > LONGEST_BODY:
                raise ValueError(f"a message of {length} bytes")
            end = HEADER.size + length
            if len(self._unread) < end:
                break
            messages.append(Message(kind, number, bytes(self._unread[HEADER.size : end])))
            del self._unread[:end]
        return messages

    def skip_to(self, mark: bytes) -> bool:
        """Drop what comes before `mark`; True once it is there."""
        found = self._unread.find(mark)
        begun = len(self._unread) - len(mark) + 1  # what may be its beginning stays
        del self._unread[: found if found >= 0 else max(begun, 0)]
        return found >= 0
