"""The value of NETBENCH_TREX, for tests with a real TRex server.

It is the directory of an unpacked package, from which tests start servers; or `HOST`, `HOST:PORT` or `HOST:PORT:PORT`
of a running server without other users, whose ports 0 and 1 are cabled to each other (its zmq_rpc_port and
zmq_pub_port; default: 4501 and 4500).
"""

import os

from netbench.generators.trex.trex_package import no_client

_NAMED = os.environ.get("NETBENCH_TREX", "")
PACKAGE = _NAMED if _NAMED.startswith("/") else ""
NO_PACKAGE = no_client() or ("" if PACKAGE else "NETBENCH_TREX is to be the directory of an unpacked TRex package")
NO_SERVER = no_client() or ("" if _NAMED and not PACKAGE else "NETBENCH_TREX is to be the host of a TRex server")


def server() -> dict[str, object]:
    """The address of the running server, as options of the generator."""
    host, *ports = _NAMED.split(":")
    return {"server": host, **dict(zip(("sync_port", "async_port"), map(int, ports), strict=False))}
