"""The web server nginx on a guest's address, with its files in the directory of the run."""

from collections.abc import Sequence

from netbench.hosts.base import run_checked
from netbench.linux.requirements import Command
from netbench.tools.base import FlowEnds

NGINX = Command("nginx", "nginx-light", "the tools http, connect and two-tier", optional=True, version="-v")
SERVER_PROGRAMS = ("nginx", "unshare")
# All paths are below the prefix, which is a directory of the run. `keepalive_requests` of 1,000, the default, would
# close connections between requests.
_CONFIGURATION = """\
daemon off;
{user}worker_processes {workers};
worker_rlimit_nofile 65536;
pid nginx.pid;
error_log stderr error;
events {{ worker_connections 16384; multi_accept on; }}
http {{
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    default_type application/octet-stream;
    sendfile on; tcp_nopush on; tcp_nodelay on;
    keepalive_requests 1000000000; keepalive_timeout 1h; reset_timedout_connection on;
    open_file_cache max=16 inactive=1h; open_file_cache_valid 1h;
    server {{
        listen {address}:{port} backlog=4096;
        root {root};
        location = / {{ {location}; }}
    }}
}}
"""
# A response has the time that the client allows, and is not sent to another server, or again, after a failure.
_PROXY = "proxy_read_timeout 1h; proxy_next_upstream off"


def write_nginx_files(ends: FlowEnds, workers: int, body_size: int, upstream: str = "") -> None:
    """Write nginx's configuration and the file that it serves as `/`; TestbedError when that fails.

    Responses come from the server `upstream` (`address:port`) instead of the file, if there is one.
    """
    root = _root(ends)
    run_checked(ends.server, ["mkdir", "-p", root])
    # Its workers run as root too where it starts as root: the run's directory is closed to all others.
    user = "user root;\n" if run_checked(ends.server, ["id", "-u"]).strip() == "0" else ""
    address = f"[{ends.bound}]" if ":" in ends.bound else ends.bound
    location = f"proxy_pass http://{upstream}; {_PROXY}" if upstream else "try_files /body =500"
    text = _CONFIGURATION.format(
        user=user, workers=workers, address=address, port=ends.port, root=root, location=location
    )
    ends.server.write(f"{root}/nginx.conf", text)
    ends.server.write(f"{root}/body", "x" * body_size)


def nginx_command(ends: FlowEnds) -> Sequence[str]:
    """Return the command that runs nginx until it is killed.

    On a host that shares this machine's files it runs in a new process namespace: the kernel ends all its workers with
    it. Otherwise they would survive a master that is killed, and could not be found by their environment,
    which nginx overwrites. Guests end with all their processes.
    """
    isolated = ["unshare", "--pid", "--fork", "--kill-child"] if ends.server.shares_files else []
    return [*isolated, "nginx", "-p", _root(ends), "-c", f"{_root(ends)}/nginx.conf", "-e", "stderr"]


def _root(ends: FlowEnds) -> str:
    return f"{ends.directory}/nginx-{ends.port}"
