"""The application of a second tier: it uses CPU time for each request, and answers by HTTP.

python3 -I -S -c SOURCE ADDRESS PORT CPU_US BODY_BYTES WORKERS

Each request costs CPU_US µs of CPU time of the process that serves it, by its kernel's count (clock_gettime(2),
CLOCK_THREAD_CPUTIME_ID): time without a CPU does not count. Each of WORKERS processes serves one connection after the
other, with one request on each. They end when one of them does.

It imports small modules of the standard library alone, because guests run it, too.
"""

import os
import select
import signal
import socket
import sys
import time

_BACKLOG = 4096
_LONGEST_HEAD = 65536
_SILENT_S = 10.0
_END_OF_HEAD = b"\r\n\r\n"
_CHECK_S = 0.2


def serve(listening: socket.socket, cpu_ns: int, response: bytes) -> None:
    """Serve requests as long as the process that started this one runs."""
    parent = os.getppid()
    while os.getppid() == parent:
        if not select.select([listening], [], [], _CHECK_S)[0]:
            continue
        try:
            connection, _ = listening.accept()
        except BlockingIOError:  # another process was faster
            continue
        began_ns = time.thread_time_ns()
        connection.settimeout(_SILENT_S)  # a client that sends nothing
        with connection:
            try:
                head = piece = connection.recv(_LONGEST_HEAD)
                while piece and _END_OF_HEAD not in head and len(head) < _LONGEST_HEAD:
                    piece = connection.recv(_LONGEST_HEAD)
                    head += piece
                if _END_OF_HEAD in head:
                    burn(began_ns + cpu_ns)
                    connection.sendall(response)
            except OSError:  # the client has gone
                continue


def burn(until_ns: int) -> None:
    """Compute until this thread has used so much CPU time since its start, in ns."""
    while time.thread_time_ns() < until_ns:
        pass


def response_of(body_bytes: int) -> bytes:
    """Return a response with a body of this size."""
    fields = f"Content-Type: application/octet-stream\r\nContent-Length: {body_bytes}\r\nConnection: close"
    return f"HTTP/1.1 200 OK\r\n{fields}\r\n\r\n".encode() + b"x" * body_bytes


def main() -> None:
    """Serve at the address and port of the arguments."""
    address, (port, cpu_us, body_bytes, workers) = sys.argv[1], map(int, sys.argv[2:6])
    listening = socket.create_server((address, port), backlog=_BACKLOG)
    listening.setblocking(False)
    response, children = response_of(body_bytes), set()
    for _ in range(workers):
        child = os.fork()
        if not child:
            serve(listening, 1000 * cpu_us, response)
            return
        children.add(child)
    ended, _ = os.wait()
    for child in children - {ended}:
        os.kill(child, signal.SIGKILL)
    sys.exit(f"process {ended} of the application ended")


if __name__ == "__main__":
    main()
