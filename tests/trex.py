"""What NETBENCH_TREX names, for tests with a real TRex server.

The directory of an unpacked package, of which tests start servers; or `HOST`, `HOST:PORT` or `HOST:PORT:PORT` of a
server that runs already and is nobody's else, whose ports 0 and 1 are cabled to each other (its zmq_rpc_port and
zmq_pub_port, 4501 and 4500 otherwise).
"""

import os

from netbench.generators.trex.client_package import no_client

_NAMED = os.environ.get("NETBENCH_TREX", "")
PACKAGE = _NAMED if _NAMED.startswith("/") else ""
NO_PACKAGE = no_client() or ("" if PACKAGE else "NETBENCH_TREX is to be the directory of an unpacked TRex package")
NO_SERVER = no_client() or ("" if _NAMED and not PACKAGE else "NETBENCH_TREX is to be the host of a TRex server")


def server() -> dict[str, object]:
    """Where the server is that runs, as the options of the generator have it."""
    host, *ports = _NAMED.split(":")
    return {"server": host, **dict(zip(("sync_port", "async_port"), map(int, ports), strict=False))}
