"""The generator and sink trex: its options, and its requirements on a machine."""

from typing import ClassVar

from netbench.generators.base import Generator
from netbench.generators.trex.client_package import LARGEST_FRAME, REMEDY, look_for_client, newer, no_client
from netbench.generators.trex.trex_options import TrexOptions
from netbench.generators.trex.trex_servers import TrexServers
from netbench.generators.trex.trex_sink import TrexSink
from netbench.generators.trex.trex_source import TrexSource
from netbench.generators.worker_source import no_netbench
from netbench.hosts.base import Host, run_checked
from netbench.linux.requirements import Facility
from netbench.sinks.base import SinkKind


class Trex(Generator, SinkKind):
    """A TRex server (stateless), by the packaged client lbr-trex-client: NICs that TRex owns, or veth.

    As a sink it counts only frames of its own sources."""

    Options: ClassVar[type[TrexOptions]] = TrexOptions
    sends_mixes: ClassVar[bool] = True
    counts_mixes: ClassVar[bool] = True
    counts_own_only: ClassVar[bool] = True
    may_need = (Facility("trex-client", "the generator trex: the client of TRex", REMEDY, look_for_client),)

    def __init__(self, options: TrexOptions) -> None:
        self._options = options
        self._servers = TrexServers(options)

    @property
    def largest_frame(self) -> int | None:
        """The largest frame in bytes with FCS: limited only for a server that netbench starts."""
        return None if self._options.path is None else LARGEST_FRAME

    def unfit(self, host: Host) -> str:
        if (missing := no_client() or no_netbench(host)) or host.shares_files:
            return missing
        # This machine's client is copied to that host.
        version = run_checked(host, ["python3", "-I", "-c", "import sys; print(*sys.version_info[:2])"])
        return newer(tuple(map(int, version.split())))

    def source(self) -> TrexSource:
        return TrexSource(self._options, self._servers)

    def sink(self) -> TrexSink:
        self._servers.count = True
        return TrexSink(self._options, self._servers)
