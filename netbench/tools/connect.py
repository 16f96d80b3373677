"""Tool `connect`: connection rate and time to connect, measured by netbench's own client (tcp_client.py).

The guest's kernel completes the handshakes; the server only has to accept as fast. nginx does so at a fraction of the
cost of a program in Python, most of all on an emulated CPU.
"""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import BaseModel

from netbench.hosts.base import Completed
from netbench.hosts.remote_code import program_command
from netbench.model.flow_result import FlowResult
from netbench.model.units import Load, LoadKind
from netbench.tools import tcp_client
from netbench.tools.base import Demand, FlowEnds, Tool, WireView
from netbench.tools.client_options import ClientOptions, unstartable_reason
from netbench.tools.client_output import figures_of
from netbench.tools.nginx import NGINX, SERVER_PROGRAMS, nginx_command, write_nginx_files
from netbench.tools.tcp_client import ClientSettings


class ConnectOptions(ClientOptions):
    """The connections of a client, each of which is closed by a RST as soon as it is established."""


class Connect(Tool):
    """Connects at intended times (load `100/s`, open loop), or as fast as N clients can (load `max`)."""

    Options: ClassVar[type[BaseModel]] = ConnectOptions
    loads = frozenset({LoadKind.MAX, LoadKind.OPERATION_RATE})
    server_programs = SERVER_PROGRAMS
    may_need = (NGINX,)

    def __init__(self, options: ConnectOptions) -> None:
        super().__init__(options)
        self.options = options

    def unsupported_reason(self, demand: Demand) -> str:
        return unstartable_reason(demand.load) or super().unsupported_reason(demand)

    @property
    def timeout_s(self) -> float:
        return self.options.timeout

    def wire_view(self, load: Load) -> WireView:
        return WireView(compared="connect", wire_kind="handshake", many_connections=True)

    def before_serving(self, ends: FlowEnds) -> None:
        write_nginx_files(ends, self.options.workers, body_size=0)

    def server_command(self, ends: FlowEnds) -> Sequence[str]:
        return nginx_command(ends)

    def client_command(self, ends: FlowEnds, demand: Demand) -> Sequence[str]:
        settings = ClientSettings(self.options.loop(ends, demand))
        return program_command(ends.client, tcp_client, settings.as_argument)

    def result(self, done: Completed, demand: Demand, ends: FlowEnds, workload: str) -> FlowResult:
        kinds = {"response": "response", "service": "connect"}
        return figures_of(done, demand, ends, workload, kinds, "netbench connect client")
