"""Servers that netbench emulates: each a network namespace with an address and its own SSH server.

Apart from its network, a server has its own processes and its own files below /run and /var/tmp. It sees none of the
files that netbench, or another server, has there. Its control groups are those of this machine. All servers and the
namespace that ssh runs in are on one control network, and on no other. Links between their ports are veth pairs,
which stand for cables.
"""

import ipaddress
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from netbench.errors import MissingError, TestbedError, UsageError
from netbench.hosts.base import Host, Process, run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.host_wrappers import NamespaceHost
from netbench.hosts.pipes import end
from netbench.hosts.trusted_code import search_path
from netbench.linux.cgroups import USUAL_DIRECTORY
from netbench.linux.changes import (
    AddAddress,
    AddBridge,
    AddNamespace,
    AddRunDirectory,
    AddVeth,
    Change,
    Enslave,
    SetSysctl,
    SetUp,
)
from netbench.linux.locks import STATE_DIRECTORY
from netbench.linux.machine import Machine
from netbench.model.host_spec import SshSpec
from netbench.model.paths import PREFIX, host_of
from netbench.model.stream_paths import veth_mac
from netbench.model.topology import Topology

_BRIDGE = f"{PREFIX}br-control"
_AT_SERVER = f"{PREFIX}control"  # the interface of a server on the control network
_LENGTH = 24  # prefix length of the control network
_PORT = 22
_READY_S = 10.0
# The directory of an SSH server's files; sshd needs this directory anyway, for its privilege separation.
_SETTINGS = "/run/sshd"
# The shell reads no settings of the user of this machine.
_USERS = f"root:x:0:0:root:/root:/bin/sh\nsshd:x:100:65534::{_SETTINGS}:/usr/sbin/nologin\n"
# Mounts what a server does not share with this machine, then runs its SSH server in place of the shell; $0: its files.
_ALONE = (
    'mount -t tmpfs tmpfs /mnt && cp -a "$0/." /mnt && mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /var/tmp && '
    f"mkdir -p {_SETTINGS} /run/netns /run/lock && mount --move /mnt {_SETTINGS} && "
    f"mount -t proc proc /proc && mount --bind {_SETTINGS}/passwd /etc/passwd && "
    f"{{ [ ! -s {_SETTINGS}/groups ] || mount -t tmpfs -o mode=755 tmpfs {USUAL_DIRECTORY}; }} && "
    '{ while read -r kind where options; do mkdir -p "$where"; mount -t "$kind" -o "$options" "$kind" "$where"; done '
    f'<{_SETTINGS}/groups || :; }} && exec "$@"'
)


def played(topology: Topology) -> dict[str, SshSpec]:
    """Return the emulated hosts of a topology; UsageError if their addresses are not in one network."""
    found = {name: spec for name, spec in topology.ssh_hosts.items() if spec.is_emulated}
    addresses = [spec.address for spec in found.values()]
    try:
        networks = {ipaddress.IPv4Interface(f"{address}/{_LENGTH}").network for address in addresses}
    except ValueError as error:
        raise UsageError(f"address: {error}: a server that netbench plays needs an IPv4 address") from error
    if len(networks) > 1:
        raise UsageError(
            f"address: servers that netbench plays are in one network of /{_LENGTH}; here they are in several"
        )
    return found


def namespaces_of(topology: Topology) -> dict[str, str]:
    """Return the namespace of each emulated server by host, and the control namespace under ""; empty without any."""
    names = ["", *played(topology)]
    return {name: f"{PREFIX}{topology.name}-{name or 'control'}" for name in names} if len(names) > 1 else {}


def server_changes(topology: Topology) -> list[Change]:
    """Return the changes on this machine that set up the emulated servers, in order."""
    namespaces, servers = namespaces_of(topology), played(topology)
    if not servers:
        return []
    control = namespaces[""]
    changes: list[Change] = [AddNamespace(netns) for netns in namespaces.values()]
    for netns in namespaces.values():
        changes += [SetSysctl(netns, f"net.ipv6.conf.{part}.disable_ipv6", "1", True) for part in ("all", "default")]
        changes.append(SetUp(netns, "lo"))
    changes += [AddBridge(control, _BRIDGE), AddAddress(control, _BRIDGE, _own_address(servers), _LENGTH)]
    changes.append(SetUp(control, _BRIDGE))
    for number, (name, spec) in enumerate(servers.items(), start=1):
        mac, ours = f"02:6e:62:ff:{number:02x}:", f"{PREFIX}c{number}"
        changes.append(AddVeth(control, ours, f"{mac}01", namespaces[name], _AT_SERVER, f"{mac}02"))
        changes.append(AddAddress(namespaces[name], _AT_SERVER, spec.address, _LENGTH))
        changes += [Enslave(control, ours, _BRIDGE), SetUp(control, ours), SetUp(namespaces[name], _AT_SERVER)]
    return [*changes, *_cables(topology, namespaces)]


def _cables(topology: Topology, namespaces: Mapping[str, str]) -> Iterator[Change]:
    for link in topology.links:
        machines = [topology.machine(host_of(end)) or "" for end in link.ends]
        ends = [
            (namespaces.get(machine, ""), topology.interface(end))
            for machine, end in zip(machines, link.ends, strict=True)
        ]
        if not topology.is_port(link.ends[0]) or not any(netns for netns, _ in ends):
            continue
        if len(ends) != 2 or not all(netns for netns, _ in ends):
            raise UsageError(
                f"link {' – '.join(link.ends)}: a port of a server that netbench plays is cabled to another one's"
            )
        (netns, interface), (peer_netns, peer) = ends
        macs = [veth_mac(topology, end) for end in link.ends]
        yield AddVeth(netns, interface, macs[0], peer_netns, peer, macs[1], link.mtu_bytes)
        yield from (SetUp(*end) for end in ends)


def _own_address(servers: Mapping[str, SshSpec]) -> str:
    taken = {spec.address for spec in servers.values()}
    network = ipaddress.IPv4Interface(f"{next(iter(taken))}/{_LENGTH}").network
    return next(str(address) for address in reversed(list(network.hosts())) if str(address) not in taken)


@contextmanager
def servers_at_work(topology: Topology, machine: Machine, run_id: str) -> Iterator[tuple[Host, dict[str, SshSpec]]]:
    """Run the emulated servers for the block; yield the host where ssh runs, and the SSH settings of each server.

    Their changes must have been made. TestbedError when a server does not come up.
    """
    namespaces, local = namespaces_of(topology), machine.host()
    directory = STATE_DIRECTORY / "servers" / run_id[-12:]
    machine.make([AddRunDirectory(str(directory))])
    key, known = directory / "key", directory / "known_hosts"
    run_checked(local, ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "netbench", "-f", str(key)])
    local.write(str(directory / "passwd"), _USERS)
    local.write(str(directory / "groups"), _control_groups(local.read("/proc/self/mounts")))
    ways, lines = {}, []
    with ExitStack() as stack:
        for name, spec in played(topology).items():
            host_key = directory / f"{name}-host-key"
            run_checked(local, ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(host_key)])
            lines.append(f"{spec.address} {local.read(f'{host_key}.pub')}")
            inside = NamespaceHost(local, namespaces[name])
            stack.callback(end, _server(inside, name, spec, directory))
            ways[name] = replace(spec, user="root", ssh_port=_PORT, key=str(key), known_hosts=str(known))
        local.write(str(known), "".join(lines))
        yield NamespaceHost(local, namespaces[""]), ways


def _control_groups(mounts: str) -> str:
    """Return the control group mounts in /proc's list, which a server must repeat: `ip netns exec` replaces /sys."""
    lines = (line.split() for line in mounts.splitlines())
    mounted = (line for line in lines if line[2].startswith("cgroup") and line[1].startswith(USUAL_DIRECTORY))
    return "".join(f"{kind} {where} {options}\n" for _, where, kind, options, *_ in mounted)


def quoted(argument: str) -> str:
    """Return an argument quoted for sshd_config(5), so that spaces in it are kept."""
    return '"' + argument.replace('"', '\\"') + '"'


def _server(host: Host, name: str, spec: SshSpec, directory: Path) -> Process:
    """Start the SSH server of an emulated host; TestbedError when it does not listen at its address in time."""
    program = shutil.which("sshd", path=search_path())
    if program is None:
        raise MissingError("the command `sshd` is not on this host; `netbench doctor` names its package")
    settings = {
        "ListenAddress": f"{spec.address}:{_PORT}",
        "HostKey": f"{_SETTINGS}/{name}-host-key",
        "AuthorizedKeysFile": f"{_SETTINGS}/key.pub",
        "PermitRootLogin": "prohibit-password",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "StrictModes": "no",  # the directory is root's alone
        "UsePAM": "no",
        "UseDNS": "no",
        "SetEnv": quoted(f"PATH={Path(sys.executable).parent}:{search_path()}"),  # whose Python has numpy
        "PidFile": "none",
        "PrintMotd": "no",
    }
    file = f"{name}.conf"
    host.write(str(directory / file), "".join(f"{key} {value}\n" for key, value in settings.items()))
    alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _ALONE, str(directory)]
    process = host.spawn([*alone, program, "-D", "-e", "-f", f"{_SETTINGS}/{file}"])
    listening = f"{spec.address}:{_PORT} "
    if not wait_until(lambda: process.poll() is not None or listening in host.run(["ss", "-Hltn"]).stdout, _READY_S):
        log = end(process).strip()
        raise TestbedError(f"host {name}: its SSH server does not listen within {_READY_S:g} s: {log or 'no message'}")
    if process.poll() is not None:
        raise TestbedError(f"host {name}: its SSH server ended: {end(process).strip() or 'no message'}")
    return process
