"""Tool `http`: response times of nginx in the guest, requested by netbench's own client (tcp_client.py)."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import BaseModel, Field

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


class HttpOptions(ClientOptions):
    """The requests of a web client."""

    body_size: Annotated[int, Field(strict=True, ge=1, le=16 << 20)] = 1024
    """Bytes of each response, without its head."""
    keep_alive: bool = True
    """Whether connections are used for several requests."""


class Http(Tool):
    """Requests at intended times (load `100/s`, open loop), or of clients that wait for responses (load `max`)."""

    Options: ClassVar[type[BaseModel]] = HttpOptions
    loads = frozenset({LoadKind.MAX, LoadKind.OPERATION_RATE})
    server_programs = SERVER_PROGRAMS
    may_need = (NGINX,)

    def __init__(self, options: HttpOptions) -> None:
        super().__init__(options)
        self.options = options

    def unsupported_reason(self, demand: Demand) -> str:
        return unstartable_reason(demand.load) or super().unsupported_reason(demand)

    @property
    def timeout_s(self) -> float:
        return self.options.timeout

    def wire_view(self, load: Load) -> WireView:
        # The service time on a new connection contains its handshake, which is no part of an exchange.
        return WireView(exchanges=True, compared="service" if self.options.keep_alive else "", many_connections=True)

    def before_serving(self, ends: FlowEnds) -> None:
        write_nginx_files(ends, self.options.workers, self.options.body_size)

    def server_command(self, ends: FlowEnds) -> Sequence[str]:
        return nginx_command(ends)

    def client_command(self, ends: FlowEnds, demand: Demand) -> Sequence[str]:
        settings = ClientSettings(self.options.loop(ends, demand), "/", self.options.keep_alive)
        return program_command(ends.client, tcp_client, settings.as_argument)

    def result(self, done: Completed, demand: Demand, ends: FlowEnds, workload: str) -> FlowResult:
        return self.figures(done, demand, ends, workload, "netbench http client")

    def figures(self, done: Completed, demand: Demand, ends: FlowEnds, workload: str, client: str) -> FlowResult:
        """Return the figures of a client that has ended; `client` begins the tool's name and version."""
        kinds = {"response": "response", "service": "service"}
        return figures_of(done, demand, ends, workload, kinds, client)
