"""A tool whose server has a known behaviour: netbench's HTTP client, and known_server.py instead of nginx."""

from dataclasses import replace
from typing import ClassVar

from pydantic import BaseModel

from netbench.hosts.remote_code import program_command
from netbench.linux.requirements import Requirement
from netbench.selftest import known_server
from netbench.tools.http import Http, HttpOptions


class KnownOptions(HttpOptions):
    """The behaviour, as JSON of known_server.py."""

    behaviour: str = "{}"
    busy_from: int = 1_000_000
    """Rate above which the client uses a whole CPU, and starts only half of its requests."""


class Known(Http):
    """Requests to a server of known behaviour."""

    Options: ClassVar[type[BaseModel]] = KnownOptions
    server_programs: ClassVar[tuple[str, ...]] = ("python3",)  # type: ignore[assignment]  # nginx has two programs
    may_need: ClassVar[tuple[Requirement, ...]] = ()  # type: ignore[assignment]  # nginx has one

    def __init__(self, options):
        super().__init__(options)
        self.behaviour, self.busy_from = options.behaviour, options.busy_from

    def before_serving(self, ends):
        return

    def server_command(self, ends):
        return program_command(ends.server, known_server, ends.bound, str(ends.port), self.behaviour)

    def result(self, done, demand, ends, workload):
        flow = super().result(done, demand, ends, workload)
        if demand.load.value <= self.busy_from:
            return flow
        return replace(flow, started=(flow.started or 0) // 2, client_cpu_share=1.0)
