"""A source of kind trex: one port of a TRex server, driven by a worker with the packaged client."""

import json
import shlex
from collections.abc import Sequence
from importlib.metadata import version

from netbench.errors import MissingError, UsageError
from netbench.generators.trex.client_package import PACKAGE, no_client
from netbench.generators.trex.trex_options import TrexOptions
from netbench.generators.worker_source import WorkerSource
from netbench.hosts.base import Host, run_checked
from netbench.model.tester import Identity
from netbench.model.traffic import Stamps, Traffic

_LOOPBACK_UP = ("ip", "link", "set", "lo", "up")


class TrexSource(WorkerSource):
    """One port of a running server, or of a server of its own; its worker's second argument says which.

    Frames are numbered by TRex's field engine, which cannot write times: they bear none, and delay is refused."""

    open_limit_s = 60.0  # a server takes seconds to start

    def __init__(self, options: TrexOptions) -> None:
        self._options = options
        super().__init__("trex", "netbench.generators.trex.trex_worker")

    def commands(self, interface: str, cpus: Sequence[int]) -> list[str]:
        first = [] if self._options.path is None else [f"{shlex.join(_LOOPBACK_UP)} # in a network namespace"]
        return [*first, *super().commands(interface, cpus)]

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Take the port of this interface; MissingError without client, server, or where the port is another's."""
        if missing := no_client():
            raise MissingError(missing)
        if self._options.path is not None and host.netns is not None:
            # Server and client meet at 127.0.0.1. A namespace is netbench's own, and gone after the campaign.
            run_checked(host, _LOOPBACK_UP)
        super().open(host, interface, cpus)

    def identity(self) -> Identity:
        client = "" if no_client() else f"{PACKAGE} {version(PACKAGE)}"
        versions = ", ".join(one for one in (self.version, client) if one)
        options = self._options.model_dump(exclude_unset=True)
        return Identity("trex", versions, {name: str(value) for name, value in options.items()}, 1)

    def remarks(self) -> list[str]:
        return [
            "TRex does not tell when it sent single frames: how evenly, and how late, is unknown, and frames bear no "
            "time; how long it took is known to about 20 ms"
        ]

    def stamps(self, traffic: Traffic) -> Stamps:
        return Stamps(stamped=False, first_sequence=0)

    def _command(self, interface: str, cpus: Sequence[int]) -> list[str]:
        # A server sends on when its client dies: the worker is to outlive netbench until it has stopped that, which it
        # does as soon as its stdin ends.
        outlive = ["setpriv", "--pdeathsig", "clear"]
        return [*outlive, *super()._command(interface, ()), self._settings(interface), *map(str, cpus)]

    def _settings(self, interface: str) -> str:
        """Where its port is, or the package, as the worker reads it; UsageError when the profile does not say."""
        if self._options.path is not None:
            return json.dumps({"path": self._options.path})
        port = self._options.ports.get(interface)
        if port is None:
            known = ", ".join(self._options.ports)
            raise UsageError(
                f"generator trex: which port of TRex is interface {interface}? `ports` has {known} only; "
                f"add it, for example {{{interface}: 0}}"
            )
        settings = self._options.model_dump(include={"server", "sync_port", "async_port"})
        return json.dumps({**settings, "port": port})
