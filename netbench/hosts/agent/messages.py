"""The controller's encoder and decoder of messages to and from an agent; `program.py` defines them."""

from dataclasses import dataclass

from netbench.hosts.agent.program import HEADER, LONGEST_BODY


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its kind (one byte), the number of its process or file, and its body."""

    kind: bytes
    number: int
    body: bytes

    def encode(self) -> bytes:
        """Return the bytes for the channel."""
        return HEADER.pack(self.kind, self.number, len(self.body)) + self.body


class Decoder:
    """Assembles whole messages from bytes."""

    def __init__(self) -> None:
        self._unread = bytearray()

    def take(self, data: bytes) -> None:
        """Add bytes."""
        self._unread += data

    def messages(self) -> list[Message]:
        """Return the messages that have become complete; ValueError for one that exceeds the maximum length."""
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
        """Drop the bytes before `mark`; return whether it was found."""
        found = self._unread.find(mark)
        begun = len(self._unread) - len(mark) + 1  # a possible beginning of the mark is kept
        del self._unread[: found if found >= 0 else max(begun, 0)]
        return found >= 0
