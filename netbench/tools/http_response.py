"""The responses of an HTTP/1.1 server (RFC 9112), read as they arrive: only what a client that measures needs."""

import re

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5]\d\d)(?: [^\r\n]*)?\r\n")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,15})[ \t]*(?=\r\n)", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*\r\n", re.IGNORECASE)
_SERVER = re.compile(rb"\r\nserver:[ \t]*([!-~]{1,60})", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
_END = b"\r\n\r\n"
_LONGEST_HEAD = 65_536
_NO_CONTENT = 204
_MALFORMED = "malformed"


class Response:
    """One response. `feed` takes its bytes until `has_ended`; `error` then names what is wrong, if anything.

    Errors are `malformed` (no HTTP/1 response with a Content-Length, or more bytes than that), `status-N` for a
    complete response with a status other than 2xx, and, when the connection ends before, `closed` (within the head) or
    `short` (within the body). `server` is the value of its Server field.
    """

    __slots__ = ("_closes", "_head", "_left", "error", "has_ended", "server")

    def __init__(self) -> None:
        self._head = b""
        self._left = -1  # bytes of the body that are still to come; -1 within the head
        self.has_ended = self._closes = False
        self.error = self.server = ""

    def feed(self, data: memoryview) -> None:
        """Take the next bytes of the connection."""
        size = len(data)
        if self._left < 0:
            head = self._head + bytes(data) if self._head else bytes(data[:_LONGEST_HEAD])
            stop = head.find(_END)
            if stop < 0:
                self._head = head
                # A server of another protocol is recognised at once, not at the deadline.
                if len(head) >= _LONGEST_HEAD or not head.startswith(b"HTTP/1."[: len(head)]):
                    self._refuse()
                return
            read_before = len(self._head)
            self._head = b""
            self._read_head(head[: stop + len(_END)])
            if self.has_ended:
                return
            size -= stop + len(_END) - read_before
        self._left -= size
        if self._left < 0:
            self._refuse()
        elif not self._left:
            self.has_ended = True

    @property
    def is_reusable(self) -> bool:
        """Whether the server accepts another request on this connection."""
        return self.has_ended and not self._left and self.error != _MALFORMED and not self._closes

    def end(self) -> None:
        """Note that the connection ended before the response was complete."""
        self.error = "closed" if self._left < 0 else "short"
        self.has_ended = True

    def _refuse(self) -> None:
        self.error, self.has_ended = _MALFORMED, True

    def _read_head(self, head: bytes) -> None:
        status, length = _STATUS.match(head), _LENGTH.findall(head)
        if not status or len(set(length)) > 1 or _CHUNKED.search(head):
            self._refuse()
            return
        code = int(status[1])
        if not length and code != _NO_CONTENT:
            self._refuse()
            return
        self._left = int(length[0]) if length else 0
        self._closes = _CLOSE.search(head) is not None or head.startswith(b"HTTP/1.0")
        if not 200 <= code < 300:
            self.error = f"status-{code}"
        if server := _SERVER.search(head):
            self.server = server[1].decode("ascii")
