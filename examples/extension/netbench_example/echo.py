"""A tool of another package: round-trip times of bytes that a server in the guest sends back, one after the other."""

import json
from collections.abc import Sequence

from netbench.hosts.base import Completed
from netbench.model.flow_result import FlowResult, Latencies
from netbench.model.units import Load
from netbench.tools.base import Demand, FlowEnds, Tool, ToolError, WireView, number_of

_SERVER = """
import socket, sys
listening = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    connection = listening.accept()[0]
    while data := connection.recv(1):
        connection.sendall(data)
"""
_CLIENT = """
import json, socket, sys, time
connection, times = socket.create_connection((sys.argv[1], int(sys.argv[2]))), []
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    began = time.monotonic_ns()
    connection.sendall(b"x")
    assert connection.recv(1)
    times.append(time.monotonic_ns() - began)
print(json.dumps(times))
"""


class Echo(Tool):
    """Bytes that the server sends back."""

    server_programs = ("python3",)

    def wire_view(self, load: Load) -> WireView:
        return WireView(exchanges=True, compared="rtt", warm_up_s=0.0)

    def server_command(self, ends: FlowEnds) -> Sequence[str]:
        return ["python3", "-c", _SERVER, ends.bound, str(ends.port)]

    def client_command(self, ends: FlowEnds, demand: Demand) -> Sequence[str]:
        return ["python3", "-c", _CLIENT, ends.address, str(ends.port), str(demand.duration_s)]

    def result(self, done: Completed, demand: Demand, ends: FlowEnds, workload: str) -> FlowResult:
        try:
            times = sorted(number_of(time, "a time") for time in json.loads(done.stdout))
            smallest, largest = int(times[0]), int(times[-1])
        except (ValueError, TypeError, IndexError) as error:
            raise ToolError(f"the client failed: {done.stderr.strip()[-300:]}") from error
        rtt = Latencies("rtt", tuple((int(time), 1) for time in times), int(sum(times)), smallest, largest)
        return FlowResult(
            *(ends.stream, workload, "echo 1.0", demand.duration_s),
            run_to_server_bytes=len(times),
            run_to_client_bytes=len(times),
            started=len(times),
            completed=len(times),
            latencies=(rtt,),
        )
