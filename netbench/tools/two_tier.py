"""Tool `two-tier`: response times of nginx in the guest, with an application in a second guest behind it.

The structure of a web application with a front tier and an application tier, as RUBiS in Padala et al. 2007, with an
application whose CPU time per request is known.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import BaseModel, Field

from netbench.hosts.base import Completed
from netbench.hosts.remote_code import source_command
from netbench.model.flow_result import FlowResult
from netbench.model.workload import FlowPath
from netbench.tools import application
from netbench.tools.base import Demand, FlowEnds, second_ends
from netbench.tools.http import Http, HttpOptions
from netbench.tools.nginx import write_nginx_files

_US_PER_MS = 1000


class TwoTierOptions(HttpOptions):
    """The requests of a web client, and the work of the application for each of them."""

    cpu_time: Annotated[float, Field(ge=0, le=10_000)] = 10.0
    """CPU time of the application for each request, in ms."""
    application_workers: Annotated[int, Field(strict=True, ge=1, le=256)] = 1
    """Processes of the application. Each serves one request at a time."""


class TwoTier(Http):
    """As http, with the application in the first neighbour behind nginx. Its path is to-guest."""

    Options: ClassVar[type[BaseModel]] = TwoTierOptions
    paths: ClassVar[frozenset[FlowPath]] = frozenset({FlowPath.TO_GUEST})
    needs_second_tier = True

    options: TwoTierOptions

    def before_serving(self, ends: FlowEnds) -> None:
        behind = second_ends(ends)
        upstream = f"{behind.address}:{behind.port}"
        write_nginx_files(ends, self.options.workers, self.options.body_size, upstream)

    def second_tier_command(self, ends: FlowEnds) -> Sequence[str]:
        options = self.options
        numbers = ends.port, round(options.cpu_time * _US_PER_MS), options.body_size, options.application_workers
        return source_command(application, ends.address, *map(str, numbers))

    def result(self, done: Completed, demand: Demand, ends: FlowEnds, workload: str) -> FlowResult:
        return self.figures(done, demand, ends, workload, "netbench two-tier client")
