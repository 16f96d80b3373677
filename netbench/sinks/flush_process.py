"""The process on a sink's host that sends flush frames on request."""

from contextlib import suppress
from pathlib import Path

from netbench.hosts.base import Host, Process
from netbench.hosts.pipes import Lines, end
from netbench.hosts.remote_code import program_command
from netbench.sinks import flush

# A block of 256 KiB ÷ the least size of a flush frame in it (128 bytes), and one more: the first may begin a block.
FLUSH_FRAMES = 2049
# Python starts during the first flush; on an emulated CPU that takes a second.
_ANSWER_S = 10.0


class FlushProcess:
    """One such process, alive from its first use to close()."""

    def __init__(self, host: Host, interface: str) -> None:
        self._host, self._interface = host, interface
        self._process: Process | None = None

    def start(self) -> None:
        """Start the process, so that the first push need not wait for it; TestbedError if it cannot start."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = self._host.spawn(program_command(self._host, flush, self._interface))

    def push(self, capture: Path | None, wait_s: float, frames: int = FLUSH_FRAMES) -> bool | None:
        """Send so many frames; return whether `capture`, a file of the host, ends with one of them within `wait_s`.

        False at once for no file; None if they could not be sent: the NIC or the process is gone, or the NIC is down.
        """
        answer = self._answer_to(f"{frames} {wait_s:g} {capture}\n" if capture else f"{frames} 0\n", wait_s)
        return answer == flush.SEEN if answer in (flush.SEEN, flush.UNSEEN) else None

    def prime_fdb(self, mac: str) -> None:
        """Send one frame to this address, from which bridges learn the NIC's port; errors are ignored."""
        self._answer_to(f"{flush.LEARN} {mac}\n", 0.0)

    def close(self) -> None:
        """End the process; harmless if called twice."""
        process, self._process = self._process, None
        if process is not None:
            end(process)

    def _answer_to(self, request: str, wait_s: float) -> str:
        """Send one line and return the answer, for which the process may wait `wait_s`; empty without an answer."""
        self.start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        answer = ""
        with suppress(OSError):  # a dead process does not answer either
            process.stdin.write(request)
            process.stdin.flush()
        with suppress(TimeoutError, EOFError, ValueError):
            answer = Lines(process.stdout).take(wait_s + _ANSWER_S).decode(errors="replace").strip()
        if answer not in (flush.SEEN, flush.UNSEEN) and not answer.startswith(flush.FAILED):
            self.close()  # a late answer must not be mistaken for the next one
        return answer
