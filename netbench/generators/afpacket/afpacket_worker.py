"""The process of an `afpacket` source: `python -m netbench.generators.afpacket.afpacket_worker IFACE THREADS [CPU…]`.

It imports only numpy and the standard library, so that it starts quickly.
"""

import errno
import gc
import os
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from itertools import cycle, repeat
from typing import TypeVar

from netbench.generators.afpacket.pacing import MAX_BLOCK_FRAMES, Paced, Pacer, Spent, TimeSpent, Unpaced
from netbench.generators.afpacket.send_calls import Context, Messages, Submissions
from netbench.generators.frames import FrameBlock
from netbench.generators.source_worker import Halt, Worker, serve, use_realtime
from netbench.model.frame_template import FrameTemplate
from netbench.model.traffic import Sent, Traffic

T = TypeVar("T", int, float)

# linux/if_packet.h; the socket module does not name them.
_SOL_PACKET = 263
_PACKET_QDISC_BYPASS = 20
_SO_SNDBUFFORCE = 32  # asm-generic/socket.h; x86 and Arm have it
# Frames that wait in a ring use up the socket's send buffer: a full buffer would make sending wait for the ring.
_SEND_BUFFER_BYTES = 1 << 28

# The queue to the NIC is full: try again.
_FULL = (errno.ENOBUFS, errno.EAGAIN)
# A trial that takes longer than this many times its duration, and some seconds, is stopped.
_MOST_TIMES = 3
_GRACE_S = 2


class AfPacketWorker(Worker):
    """One interface's sockets, kept open across trials, and the current trial."""

    def __init__(self, interface: str, threads: str, *cpus: str) -> None:
        self._interface = interface
        self._cpus = [int(cpu) for cpu in cpus]
        if cpus:
            os.sched_setaffinity(0, self._cpus)
        self._sockets = [_open_socket() for _ in range(int(threads))]
        self._rings: list[Context] = []
        self._bind()

    def prepare(self, traffic: Traffic) -> None:
        self._bind()
        if traffic.receive != "inline":
            for packet_socket in self._sockets:
                packet_socket.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _SEND_BUFFER_BYTES)
            self._rings = self._rings or [Context(MAX_BLOCK_FRAMES) for _ in self._sockets]
        rings = self._rings if traffic.receive != "inline" else ()
        sockets = [packet_socket.fileno() for packet_socket in self._sockets]
        self._trial = AfPacketTrial(traffic, self.template, sockets, self._cpus, self.halt, rings, self.realtime)

    def send(self, at_monotonic_ns: int) -> Sent:
        return self._trial.run(at_monotonic_ns)

    def _bind(self) -> None:
        # Again for each trial: an interface of the same name may have taken the place of the first.
        for packet_socket in self._sockets:
            packet_socket.bind((self._interface, 0))


def _open_socket() -> socket.socket:
    """Return a socket that receives nothing (protocol 0, see packet(7)) and bypasses the queueing disciplines."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
    return opened


class _Sender:
    """The socket and buffers of one thread, and its counts."""

    def __init__(self, fd: int, cpu: int | None, frames: FrameBlock, ring: Context | None) -> None:
        self.fd, self.cpu, self.frames = fd, cpu, frames
        # Frames that a full ring at the other end drops were offered: the next frame is due regardless.
        self.messages = (
            Submissions(frames.buffer, frames.lengths, fd, ring) if ring else Messages(frames.buffer, frames.lengths)
        )
        self.row = 0  # of the buffer, of the first frame of the block at hand
        self.sent = self.errors = 0
        self.returned_ns = 0  # CLOCK_MONOTONIC of the return of the last send
        self.free_ns = 0  # CLOCK_MONOTONIC from which it could have made its next send
        self.time = TimeSpent()
        self.spent = Spent(None, 0.0)


class AfPacketTrial:
    """The frames of one trial, built; `run` sends them once.

    There is one thread per socket in `fds`, packet sockets bound to the interface. Threads are pinned to `cpus` in
    turn. They take consecutive blocks of one numbering, so that the sequence numbers of all threads together are
    0 … sent − 1. Blocks of several threads may overtake each other on their way to the kernel.
    """

    def __init__(
        self,
        traffic: Traffic,
        template: FrameTemplate,
        fds: Sequence[int],
        cpus: Sequence[int],
        halt: Halt,
        rings: Sequence[Context] = (),
        realtime: int = 0,
    ) -> None:
        """`rings` has one context of MAX_BLOCK_FRAMES writes per socket where frames go to a ring; else it is empty.

        `realtime` is the priority of the threads in SCHED_FIFO; 0: another class.
        """
        self._halt, self._realtime, self._traffic = halt, realtime, traffic
        cpu_of_each: Sequence[int | None] = cpus or [None]
        ring_of_each: Iterable[Context | None] = rings or repeat(None)
        self._senders = [
            _Sender(fd, cpu, FrameBlock(traffic, MAX_BLOCK_FRAMES, template), ring)
            for fd, cpu, ring in zip(fds, cycle(cpu_of_each), ring_of_each, strict=False)
        ]
        self._pacing = threading.Lock()
        self._first_ns = (0, 0)  # when the first frame was handed over: CLOCK_MONOTONIC, CLOCK_REALTIME

    def run(self, at_ns: int) -> Sent:
        """Send from `at_ns` (CLOCK_MONOTONIC) to the end of the last frame's slot, or until halted."""
        traffic = self._traffic
        pacer: Pacer
        if traffic.fps is None or traffic.frames is None:
            pacer = Unpaced(traffic.duration_s, at_ns, self._halt)
        else:
            pacer = Paced(
                traffic.frames,
                traffic.later_fps or traffic.fps,
                at_ns,
                self._halt,
                traffic.longest_s,
                gently=traffic.receive != "inline",
                first=None if traffic.first_fps is None else (traffic.first_frames, traffic.first_fps),
                catch_up=traffic.catch_up,
            )
        longest_s = _MOST_TIMES * traffic.duration_s + _GRACE_S
        give_up_ns = max(at_ns, time.monotonic_ns()) + round(longest_s * 1e9)
        threads = [threading.Thread(target=self._send, args=(sender, pacer, give_up_ns)) for sender in self._senders]
        gc.disable()  # a collection during the trial would show as lateness
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            gc.enable()
        return self._result(pacer)

    def _send(self, sender: _Sender, pacer: Pacer, give_up_ns: int) -> None:
        """Send the blocks of one thread until the end."""
        try:
            if sender.cpu is not None:
                os.sched_setaffinity(0, {sender.cpu})  # 0 is the calling thread, see sched_setaffinity(2)
            use_realtime(self._realtime)
            sender.time.begin()
            while (count := self._next_block(sender, pacer)) and self._hand_over(sender, count, give_up_ns):
                pass
            sender.spent = sender.time.spent(max(sender.returned_ns, pacer.due_ns) if sender.returned_ns else None)
        except Exception as error:  # no caller of a thread could catch it
            self._halt.set(f"the sending thread failed: {error!r}")

    def _next_block(self, sender: _Sender, pacer: Pacer) -> int:
        """Wait for the next block and stamp it; return the number of its frames, 0 at the end.

        The wait and the stamp are under the lock, so that send times rise with sequence numbers, and
        only one thread at a time spins on the clock.
        """
        with self._pacing:
            block = pacer.next_block()
            if block is None:
                return 0
            count = len(block)
            if block.start == 0:
                # In this order: after a pause between the two, the last frame's time is still not before its stamp.
                self._first_ns = (time.monotonic_ns(), time.time_ns())
            now_ns = time.time_ns() if block.start else self._first_ns[1]
            sender.row = sender.frames.stamp(block.start, count, now_ns)
            sender.free_ns = max(sender.returned_ns, pacer.due_ns)
            return count

    def _hand_over(self, sender: _Sender, count: int, give_up_ns: int) -> bool:
        """Hand all frames of a stamped block to the kernel; return False when that has become impossible."""
        done = 0
        while done < count:
            sender.time.enter(sender.free_ns)
            taken = sender.messages.send(sender.fd, sender.row + done, count - done)
            sender.free_ns = sender.returned_ns = sender.time.leave(taken)
            if taken > 0:
                done += taken
                sender.sent += taken
                continue
            sender.errors += 1
            if -taken not in _FULL:
                self._halt.set(f"sending failed: {errno.errorcode[-taken]} ({os.strerror(-taken)})")
            if self._halt.is_set() or sender.returned_ns > give_up_ns:
                break
        if sender.returned_ns > give_up_ns:
            self._halt.set(f"sending was stopped after {_MOST_TIMES} times its duration and {_GRACE_S} s")
        return done == count

    def _result(self, pacer: Pacer) -> Sent:
        frames = sum(sender.sent for sender in self._senders)
        error = self._halt.reason
        if frames:
            returned_ns = max(sender.returned_ns for sender in self._senders)
            end_ns = max(returned_ns, pacer.end_ns(frames))
            if self._traffic.catch_up is not None and not error:  # missing frames were due, and count as unsent
                end_ns = max(end_ns, pacer.start_ns + round(self._traffic.duration_s * 1e9))
            self._halt.sleep_until(end_ns)
        first_monotonic_ns, first_ns = self._first_ns
        spent = [sender.spent for sender in self._senders]
        blocked_s = [sender.spent.backpressure_s for sender in self._senders if sender.sent]
        total_blocked_s = _sum(blocked_s)
        cpus = {sender.cpu for sender in self._senders}
        return Sent(
            frames=frames,
            errors=sum(sender.errors for sender in self._senders),
            # From the due time, not from the first send: a late first frame does not raise the rate.
            duration_s=(end_ns - pacer.start_ns) / 1e9 if frames else 0.0,
            first_ns=first_ns if frames else None,
            last_ns=first_ns + returned_ns - first_monotonic_ns if frames else None,
            max_burst_frames=pacer.max_burst_frames,
            max_lateness_s=pacer.max_lateness_ns / 1e9,
            error=error,
            in_order=len(self._senders) == 1,
            backpressure_s=None if total_blocked_s is None or not blocked_s else total_blocked_s / len(blocked_s),
            descheduled_s=max(thread.stalled_s for thread in spent),
            unevenness=pacer.unevenness(frames, end_ns) if frames else 0.0,
            ran_s=_sum(thread.ran_s for thread in spent),
            wait_s=_sum(thread.wait_s for thread in spent),
            turns=_sum(thread.turns for thread in spent),
            stalled_s=_sum(None if thread.wait_s is None else thread.stalled_s for thread in spent),
            cpu=cpus.pop() if len(cpus) == 1 else None,
        )


def _sum(of_threads: Iterable[T | None]) -> T | None:
    """Return the sum over all threads; None where one value is unknown."""
    values = list(of_threads)
    return None if None in values else sum(value for value in values if value is not None)


if __name__ == "__main__":
    serve(AfPacketWorker)
