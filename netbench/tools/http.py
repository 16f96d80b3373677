"""Tool `http`: response times of nginx in the guest, requested by netbench's own client (tcp_client.py)."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from netbench.hosts.base import Completed
from netbench.hosts.remote_code import module_command_on
from netbench.model.flow_result import FlowResult
from netbench.model.units import LoadKind
from netbench.tools.base import Demand, FlowEnds, Tool
from netbench.tools.client_loop import LoopSettings
from netbench.tools.client_output import figures_of
from netbench.tools.nginx import NGINX, SERVER_PROGRAMS, nginx_command, write_nginx_files
from netbench.tools.tcp_client import ClientSettings

_MODULE = "netbench.tools.tcp_client"


class ClientOptions(BaseModel):
    """The load of netbench's client over TCP."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    arrivals: Literal["even", "poisson"] = "even"
    """Intended starts at a rate, and think times: evenly spaced, or a Poisson process with the same mean."""
    connections: Annotated[int, Field(strict=True, ge=1, le=20_000)] = 1000
    """Most connections at a rate. Operations without one wait, which is part of their response time."""
    clients: Annotated[int, Field(strict=True, ge=1, le=20_000)] = 10
    """Clients at load max: each starts its next operation a think time after its last one has ended."""
    think_time: Annotated[float, Field(ge=0, le=3600)] = 0.0
    """Seconds between two operations of a client at load max."""
    timeout: Annotated[float, Field(gt=0, le=600)] = 10.0
    """Seconds from the intended start after which an operation has failed."""
    workers: Annotated[int, Field(strict=True, ge=1, le=256)] = 1
    """Processes of nginx that serve."""

    def loop(self, ends: FlowEnds, demand: Demand) -> LoopSettings:
        """Return the load of the client."""
        return LoopSettings(
            address=ends.address,
            port=ends.port,
            duration_s=demand.duration_s,
            warm_up_s=demand.warm_up_s,
            timeout_s=self.timeout,
            rate=demand.load.value if demand.load.kind is LoadKind.OPERATION_RATE else 0.0,
            clients=self.clients,
            think_time_s=self.think_time,
            poisson=self.arrivals == "poisson",
            connections=self.connections,
            seed=demand.seed,
        )


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

    def before_serving(self, ends: FlowEnds) -> None:
        write_nginx_files(ends, self.options.workers, self.options.body_size)

    def server_command(self, ends: FlowEnds) -> Sequence[str]:
        return nginx_command(ends)

    def client_command(self, ends: FlowEnds, demand: Demand) -> Sequence[str]:
        settings = ClientSettings(self.options.loop(ends, demand), "/", self.options.keep_alive)
        return module_command_on(ends.client, _MODULE, settings.as_argument)

    def result(self, done: Completed, demand: Demand, ends: FlowEnds, workload: str) -> FlowResult:
        kinds = {"response": "response", "service": "service"}
        return figures_of(done, demand, ends, workload, kinds, "netbench http client")
