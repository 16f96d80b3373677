"""The options of tools whose client is netbench's own (tcp_client.py), and the client's settings."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from netbench.model.units import Load, LoadKind
from netbench.tools.base import GRACE_S, Demand, FlowEnds
from netbench.tools.client_load import LoopSettings

# After its duration a client awaits the outstanding operations.
_LONGEST_TIMEOUT_S = GRACE_S - 5
# More than the client can start on any CPU: its requests cost 20 µs each.
_MOST_PER_S = 100_000


class ClientOptions(BaseModel):
    """The load of netbench's client over TCP."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    arrivals: Literal["even", "poisson"] = "even"
    """Intended starts at a rate, and think times: evenly spaced, or a Poisson process with the same mean."""
    connections: Annotated[int, Field(strict=True, ge=1, le=16_000)] = 1000
    """Maximum number of connections at a rate. Operations without one wait, which is part of their response time."""
    clients: Annotated[int, Field(strict=True, ge=1, le=16_000)] = 10
    """Clients at load max: each starts its next operation a think time after its last one has ended."""
    think_time: Annotated[float, Field(ge=0, le=3600)] = 0.0
    """Time between two operations of a client at load max, in seconds."""
    timeout: Annotated[float, Field(gt=0, le=_LONGEST_TIMEOUT_S)] = 10.0
    """Time from the intended start after which an operation has failed, in seconds."""
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
            shares_cpu=ends.shares_cpu,
        )


def unstartable_reason(load: Load) -> str:
    """Return why the client cannot start operations at a rate; empty if it can."""
    if load.kind is LoadKind.OPERATION_RATE and load.value > _MOST_PER_S:
        return f"netbench's client starts at most {_MOST_PER_S}/s, not {load}"
    return ""
