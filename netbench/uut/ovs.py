"""UUT `ovs`: Open vSwitch, started for this UUT alone, with its own database and sockets, and ended with it.

An Open vSwitch of the machine itself is not touched: ovsdb-server and ovs-vswitchd use a private directory (OVS_RUNDIR
and the like, ovs-vswitchd(8)). The datapath `netdev` forwards in ovs-vswitchd, whose main thread receives frames from a
socket on each NIC (AF_PACKET). `system` is the kernel's; there is one for each network namespace.
"""

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel

from netbench.errors import MachineGoneError, TestbedError, UsageError
from netbench.hosts.base import Host, Process, run_checked
from netbench.hosts.host_wrappers import ConfinedHost, outside
from netbench.hosts.pipes import Tail, end
from netbench.linux.changes import AddRunDirectory, AddTap, Change
from netbench.linux.proc import parse_process
from netbench.linux.requirements import IN_NETNS, Command, Feature, Probes, Requirement, require_on_host
from netbench.model.packet import FieldRef, LayersChange, Packet
from netbench.model.packet_options import HeaderOptions, PacketOptions
from netbench.model.paths import StreamPath, each_nic_once, inside_nics
from netbench.model.points import CounterReading, CountingPoint
from netbench.model.virtualisation import DurationEstimate, Supports
from netbench.uut.base import (
    Assignment,
    Reading,
    Ready,
    Site,
    Step,
    UnitUnderTest,
    UutPlan,
)
from netbench.uut.directions import sent_packet
from netbench.uut.forwarding import await_forwarding, take_all
from netbench.uut.ovs_bridges import (
    OvsPacketOptions,
    OvsTunnel,
    bridge_name,
    bridge_words,
    flows_of,
    tunnel_changes,
    tunnels_of,
)
from netbench.uut.packet_headers import retagged
from netbench.uut.packet_interfaces import PacketHandling
from netbench.uut.packet_refusals import unfiltered_reason
from netbench.uut.packet_support import added_bytes, at_sink, check_handling, unsupported_reason
from netbench.vmm.base import guest_directory

_SWITCH = CountingPoint("Open vSwitch", names_segment=True)
_QUIET_TIME_S = 0.05  # a process that competes with others
_END_S = 2.0
_WORDS_S = 0.2
_DATABASE, _DAEMON = "ovsdb-server", "ovs-vswitchd"
_PACKAGES = {
    _DAEMON: "openvswitch-switch",
    **dict.fromkeys((_DATABASE, "ovsdb-tool", "ovs-ofctl", "ovs-appctl"), "openvswitch-common"),
    "ovs-vsctl": "openvswitch-switch",
}
# A line of `ss -0 -m -n -p`: interface of a socket, its process, and the frames that found it full (sk_drops).
_SOCKET = re.compile(r"\*:(\S+)\s.*pid=(\d+),.*?skmem:\([^)]*\bd(\d+)\)")


class OvsOptions(OvsPacketOptions, extra="forbid"):
    """The `datapath` that forwards: `netdev` (in userspace) or `system` (the kernel's), and what it does to packets."""

    datapath: Literal["netdev", "system"] = "netdev"
    """netdev: in userspace. system: the kernel's module."""


@dataclass(frozen=True, slots=True)
class OvsCommand:
    """A command of Open vSwitch, run to its end or, if it `stays`, left running."""

    argv: tuple[str, ...]
    stays: bool = False

    @property
    def command(self) -> str:
        return shlex.join(self.argv)


class Ovs(UnitUnderTest):
    """Open vSwitch, started privately: one bridge per pair of NICs, with a flow for each direction."""

    Options: ClassVar[type[BaseModel]] = OvsOptions
    supports = Supports(pinning=("its processes",), shares=("weight", "limit"), counters=("NICs", "its ports"))
    may_need: ClassVar[tuple[Requirement, ...]] = (
        *(Command(name, package, "UUTs of kind ovs", optional=True) for name, package in _PACKAGES.items()),
        Feature(
            "openvswitch",
            "UUTs of kind ovs with `datapath: system`",
            IN_NETNS,
            "CONFIG_OPENVSWITCH",
            "openvswitch",
            Probes.openvswitch,
            optional=True,
            otherwise="`datapath: netdev` does without",
        ),
    )

    def __init__(self, options: OvsOptions) -> None:
        self._options, self._datapath = options, options.datapath
        header = {name: getattr(options, name) for name in HeaderOptions.model_fields}
        self._handling = PacketHandling(PacketOptions(**header))
        self._running: dict[str, tuple[Process, Tail]] = {}

    def check(self, paths: Sequence[StreamPath]) -> None:
        for path in paths:
            if inside_nics(path)[0].netns is None and self._datapath == "system":
                raise UsageError(
                    "datapath: system is one for a whole network namespace, and another Open vSwitch may use that of "
                    "the machine: give the UUT's host the kind netns, or take `datapath: netdev`"
                )
        kinds = {"terminate": self._options.terminate, "originate": self._options.originate}
        tunnels = {option: kind for option, kind in kinds.items() if kind not in (None, "vlan")}
        for option, kind in tunnels.items():
            if self._datapath == "system":
                raise UsageError(f"{option}: netbench sets {kind} up in userspace only: take `datapath: netdev`")
        if self._options.retag and any(path.has_reverse for path in paths):
            raise UsageError("retag: leave it out where a stream has a reverse stream, whose tags would be other ones")
        check_handling(paths, self._handling, all_ours=not tunnels)

    def unsupported_reason(self, packet: Packet, paths: Sequence[StreamPath]) -> str:
        if self._options.retag:
            return unfiltered_reason(packet, list(self._options.retag))
        handling = PacketHandling(self._handling.options, (packet,))
        kind = self._options.terminate
        if reason := unsupported_reason(packet, paths, "bridge", handling, all_ours=True):
            return reason
        varies = any(field.ref == FieldRef("IP", "dst") for field in packet.vary)
        if kind and kind != "vlan" and varies:
            return "IP.dst: the tunnel has one address, so the outer destination must not vary"
        return ""

    def sent_packet(self, packet: Packet, path: StreamPath) -> Packet:
        return sent_packet(packet, path, self._handling.options)

    def added_bytes(self, packet: Packet, path: StreamPath) -> int:
        return added_bytes(packet, path, PacketHandling(self._handling.options, (packet,)))

    def plan(self, assignment: Assignment) -> UutPlan:
        return UutPlan(
            steps=(*assignment.cgroup_changes, *self._changes(assignment), *self._commands(assignment)),
            needs=frozenset({*_PACKAGES, "tun" if self._datapath == "netdev" else "openvswitch"}),
            load_needs=frozenset({"stress-ng"}),
            pace=DurationEstimate(bring_up_s=1.0, load_s=0.1, worker_s=0.015),
            in_process=self._datapath == "netdev",
        )

    def provision(self, site: Site) -> None:
        """Carry out the plan; TestbedError, with the output of ovs-vswitchd, when that fails."""
        require_on_host(site.host, self.may_need)
        try:
            super().provision(site)
        except MachineGoneError:
            raise
        except TestbedError as error:
            raise TestbedError(" ".join((str(error), self._last_words()))) from error

    def take(self, step: Step, site: Site) -> None:
        """Start or run a command of the plan."""
        assert isinstance(step, OvsCommand)
        if not step.stays:
            done = site.host.run(step.argv)
            if done.exit_code != 0 or "Error detected" in done.stderr:
                lacking = (
                    "datapath: system needs a kernel with CONFIG_OPENVSWITCH (module openvswitch), and netdev does not"
                )
                words = done.stderr.strip().partition("\n")[0] if self._datapath == "netdev" else lacking
                raise TestbedError(f"{step.argv[0]}: {words}")
            return
        process = self._inside(site).spawn(step.argv)
        assert process.stderr
        self._running[_name(step)] = process, Tail(process.stderr)

    def ready(self) -> Ready:
        site = self.site
        await_forwarding(site.machine, [nic.place for path in site.paths for nic in inside_nics(path)])
        version = run_checked(site.host, [_DAEMON, "--version"]).splitlines()[0].split()[-1]
        return Ready(
            next_hop_macs={
                path.name: inside_nics(path)[0].mac if self._handling.ends_tunnels(path) else path.sink.mac
                for path in site.paths
            },
            quiet_time_s=_QUIET_TIME_S,
            inside=self._inside(site),
            facts={
                "forward": f"Open vSwitch {version}, datapath {self._datapath}",
                **site.assignment.cpu_facts,
            },
            points={path.name: (_SWITCH,) for path in site.paths},
            probe_limit_s=self.probe_limit_s,
            at_sink=self._at_sink(site.paths),
        )

    def reset(self) -> None:
        """Set the neighbours of tunnels again, which Open vSwitch forgets when they are not used."""
        for command in self._neighbours(self.site.assignment):
            self.take(command, self.site)

    def _at_sink(self, paths: Sequence[StreamPath]) -> dict[str, LayersChange]:
        """Return the change of headers on the way to the sink by stream."""
        if self._options.retag:
            return {path.name: partial(retagged, tags=self._options.retag) for path in paths}
        return at_sink(paths, "bridge", PacketHandling(self._handling.options, self.site.assignment.packets))

    def read(self) -> Reading:
        """Return frames lost to full sockets of the datapath, and CPU time; TestbedError when a process has ended."""
        for name, (process, _) in self._running.items():
            if process.poll() is not None:
                raise TestbedError(f"{name} has ended with exit code {process.returncode}: {self._last_words()}")
        if _DAEMON not in self._running or not self.site.paths:
            return Reading()
        machine = outside(self.site.host)
        pid = int(machine.read(f"{_directory(self.site.assignment)}/{_DAEMON}.pid"))
        used_s = {"host": parse_process(machine.read(f"/proc/{pid}/stat")).cpu_s}
        return Reading(tuple(self._sockets(pid)) if self._datapath == "netdev" else (), used_s)

    def forwarding_threads(self) -> Mapping[int, str]:
        process, _ = self._running.get(_DAEMON, (None, None))
        local = process if isinstance(process, subprocess.Popen) and self._datapath == "netdev" else None
        return {local.pid: _DAEMON} if local else {}

    def console(self) -> str:
        """Return the errors that ovs-vswitchd logged."""
        return self._running[_DAEMON][1].text() if _DAEMON in self._running else ""

    def destroy(self) -> None:
        """End the processes, the switch before its database; the rest is undone with the site's changes."""
        for process, _ in reversed(self._running.values()):
            process.terminate()
            end(process, _END_S)
        self._running.clear()
        super().destroy()

    def _inside(self, site: Site) -> Host:
        own = site.assignment
        return ConfinedHost(site.host, own.cpu_shares.cpus, own.cgroup_procs(site.host))

    def _changes(self, own: Assignment) -> list[Change]:
        """Return its directory, its own interfaces, which outlive it when it is killed, and promiscuous NICs."""
        nics = [nic for path in own.paths for nic in inside_nics(path)]
        taps = [] if self._datapath == "system" or not nics else [(nics[0].netns, "ovs-netdev")]
        if taps:
            taps += [(inside_nics(path)[0].netns, bridge_name(path)) for path in each_nic_once(own.paths)]
        return [
            AddRunDirectory(_directory(own)),
            *(AddTap(netns, interface) for netns, interface in taps),
            *(change for tunnels in self._tunnels(own).values() for change in tunnel_changes(tunnels)),
            *take_all(own.paths),
        ]

    def _commands(self, own: Assignment) -> list[OvsCommand]:
        where = _directory(own)
        private = ("env", *(f"OVS_{kind}={where}" for kind in ("RUNDIR", "DBDIR", "LOGDIR", "SYSCONFDIR")))
        database, files = f"{where}/conf.db", (f"--unixctl={where}/%s.ctl", f"--pidfile={where}/%s.pid")
        vsctl = ("ovs-vsctl", f"--db=unix:{where}/db.sock", "--retry", "-t", "10")

        def daemon(name: str, *words: str) -> OvsCommand:
            own_files = (file.replace("%s", name) for file in files)
            return OvsCommand((*private, name, *words, *own_files, "-vsyslog:off", "-vconsole:warn"), stays=True)

        commands = [
            OvsCommand(("ovsdb-tool", "create", database)),
            daemon(_DATABASE, database, f"--remote=punix:{where}/db.sock"),
            daemon(_DAEMON, f"unix:{where}/db.sock"),
        ]
        for path in each_nic_once(own.paths):
            tunnels = self._tunnels(own)[path.name]
            for words in bridge_words(path, self._datapath, tunnels):
                commands.append(OvsCommand((*vsctl, *words)))
            for bridge, flow in flows_of(path, self._options, tunnels):
                version = ("-O", "OpenFlow13") if "push_vlan" in flow else ()
                commands.append(OvsCommand(("ovs-ofctl", *version, "add-flow", f"unix:{where}/{bridge}.mgmt", flow)))
        return [*commands, *self._neighbours(own)]

    def _neighbours(self, own: Assignment) -> list[OvsCommand]:
        """Return the commands that set the neighbours of tunnels, which would otherwise be found by ARP."""
        control = f"{_directory(own)}/{_DAEMON}.ctl"
        return [
            OvsCommand(("ovs-appctl", "-t", control, "tnl/neigh/set", tunnel.bridge, tunnel.remote, tunnel.remote_mac))
            for tunnels in self._tunnels(own).values()
            for tunnel in tunnels.values()
            if tunnel.remote
        ]

    def _tunnels(self, own: Assignment) -> dict[str, dict[int, OvsTunnel]]:
        """Return the tunnels of each stream, reverse streams left out, by the numbers of their ports."""
        return {path.name: tunnels_of(path, self._options, own.packets) for path in each_nic_once(own.paths)}

    def _sockets(self, pid: int) -> list[CounterReading]:
        """Return the drops by stream; none where the kernel does not list packet sockets (CONFIG_PACKET_DIAG)."""
        listed = run_checked(self.site.host, ["ss", "-0", "-m", "-n", "-p"])
        full = {match[0]: int(match[2]) for match in _SOCKET.findall(listed) if int(match[1]) == pid}
        ingress: Mapping[str, str] = {path.name: inside_nics(path)[0].interface for path in self.site.paths}
        return [
            CounterReading(stream, _SWITCH.name, "socket full", "dropped", full[interface])
            for stream, interface in ingress.items()
            if interface in full
        ]

    def _last_words(self) -> str:
        lines = self._running[_DAEMON][1].text(_WORDS_S).splitlines() if _DAEMON in self._running else []
        return f"({_DAEMON}: {lines[-1].rpartition('|')[2]})" if lines else ""


def _directory(own: Assignment) -> str:
    return str(Path(guest_directory(own.run_id, f"uut-{own.name}")))


def _name(step: OvsCommand) -> str:
    return next(word for word in step.argv if word in (_DATABASE, _DAEMON))
