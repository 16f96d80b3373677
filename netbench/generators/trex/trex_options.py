"""Options of a TRex server: its address, and the mapping from interfaces to its ports."""

from typing import Annotated, Self

from pydantic import BaseModel, Field, model_validator

TcpPort = Annotated[int, Field(ge=1, le=65535)]


class TrexOptions(BaseModel, extra="forbid"):
    """A running server and its ports, by interface name of the sources; or the package to start servers from.

    The server receives requests at `sync_port` and publishes at `async_port` (its `zmq_rpc_port` and `zmq_pub_port`).
    With `path`, the directory of a TRex package, netbench starts its own servers, in software. `delay_fps` frames/s
    of each stream measure its delay, where the sink is trex as well.
    """

    server: str = Field(default="127.0.0.1", min_length=1)
    """Address of a running server, as seen by the sources' machine."""
    sync_port: TcpPort = 4501
    """Request port (`zmq_rpc_port`)."""
    async_port: TcpPort = 4500
    """Publisher port (`zmq_pub_port`)."""
    ports: dict[str, Annotated[int, Field(ge=0, le=255)]] = Field(default_factory=dict)
    """Ports of the running server, by interface name."""
    path: str | None = Field(default=None, pattern="^/")
    """Directory of an unpacked TRex package; netbench starts servers of its own."""
    delay_fps: float = Field(default=0, ge=0, le=100_000)
    """With sink trex: frames/s of each stream that measure delay."""

    @model_validator(mode="after")
    def _one_or_the_other(self) -> Self:
        if self.path is None and not self.ports:
            raise ValueError(
                "neither `ports` nor `path`: say which port of a running server each interface is, as in "
                "{kind: trex, ports: {eth1: 0}}, or where the package is to start servers of: {kind: trex, path: "
                "/opt/trex/v3.08}"
            )
        if self.path is not None and self.model_fields_set - {"path", "delay_fps"}:
            raise ValueError("with `path`, netbench starts the servers: leave out server, sync_port, async_port, ports")
        if len(set(self.ports.values())) < len(self.ports):
            raise ValueError("ports: two interfaces are the same port of TRex; give each a port of its own")
        return self
