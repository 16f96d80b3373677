"""Namespaces with the links of two streams, here or in a VM, in which UUTs are brought up by hand, side by side."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from netbench.hosts.base import Host, run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.host_wrappers import NamespaceHost
from netbench.hosts.local import LocalHost, end_marked_processes, marked_processes
from netbench.linux.changes import Change
from netbench.linux.machine import Machine
from netbench.linux.netlink import Netlink
from netbench.linux.recovery_journal import Journal
from netbench.model.frame_size import FrameSize
from netbench.model.packet import Packet
from netbench.model.paths import StreamPath
from netbench.model.points import whole_path
from netbench.model.stream_paths import stream_paths
from netbench.model.topology_specs import CpuShares
from netbench.model.traffic import Traffic
from netbench.packets.build import build_template
from netbench.testbed.bring_up import base_changes
from netbench.uut.base import EVERYTHING, ActiveGuest, Assignment, Reading, Site, UnitUnderTest, bring_up
from netbench.uut.guest import Guest, StartGuest
from netbench.vmm.base import RunningGuest, Vmm
from tests.unit.inputs import topology

FRAMES = 100
_KILLING_S = 0.5
_SETTLE_S = 0.5
_END_S = 5.0
SEND = """
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
    sender.bind((sys.argv[1], 0))
    for _ in range(int(sys.argv[2])):
        sender.send(bytes.fromhex(sys.argv[3]))
"""


@dataclass(frozen=True)
class Yard:
    """Namespaces with the links of two streams, in which UUTs are brought up by hand."""

    run_id: str
    hosts: dict[str, Host]
    machine: Machine
    paths: tuple[StreamPath, ...]
    always_there: frozenset[str] = frozenset()  # commands that always run in a VM

    def running(self) -> list[tuple[int, str]]:
        """The processes of the UUTs brought up, with their commands."""
        if self.machine.name is None:
            return list(marked_processes(self.run_id))
        there = processes(self.machine.host())
        return [(pid, words) for pid, words in there if words not in self.always_there]

    def left(self) -> list[tuple[int, str]]:
        """The processes still running a moment after they were ended."""
        wait_until(lambda: not self.running(), _END_S)
        return self.running()

    def kill(self) -> None:
        """Kill them repeatedly for a moment: a process that is just calling another program is missed at first."""
        wait_until(self._killed_all_for_good, _KILLING_S)

    def _killed_all_for_good(self) -> bool:
        for pid, _ in self.running():
            self.machine.host().run(["kill", "-KILL", str(pid)])
        return False  # never certain: repeat until the time is over

    @contextmanager
    def uut(
        self,
        uut: UnitUnderTest,
        name: str,
        paths: tuple[StreamPath, ...] = (),
        entitlement: CpuShares = EVERYTHING,
        packets: tuple[Packet, ...] = (),
    ) -> Iterator[ActiveGuest]:
        """Bring up a UUT until the block ends."""
        point = self.machine.point
        try:
            own = Assignment(name, paths, entitlement, "uut", self.run_id, packets)
            active = bring_up(uut, Site(own, self.machine, self.hosts))
            uut.reset()
            yield active
        finally:
            uut.destroy()
            assert self.machine.undo(to=point) == []

    @contextmanager
    def started(self, vmm: Vmm, name: str, paths: tuple[StreamPath, ...] = ()) -> Iterator[RunningGuest]:
        """Start a guest by its driver until the block ends, without waiting for a response."""
        point, guest = self.machine.point, None
        try:
            for step in Guest(vmm).plan(Assignment(name, paths, EVERYTHING, "uut", self.run_id)).steps:
                if isinstance(step, Change):
                    self.machine.make([step])
                elif isinstance(step, StartGuest):
                    host = self.machine.host() if vmm.elsewhere else self.hosts["uut"]
                    guest = vmm.start(replace(step.spec, netns=host.netns), host)
            assert guest is not None
            yield guest
        finally:
            if guest is not None:
                guest.stop()
            assert self.machine.undo(to=point) == []

    def forwarded(self, active: ActiveGuest, path: StreamPath, frames: int = FRAMES) -> int:
        """The number of frames that reach the sink out of this many, sent one after the other."""
        before = self._arrived(path)
        ends = path.source.mac, active.ready.next_hop_macs[path.name], path.src_ip, path.dst_ip
        traffic = Traffic(path.name, *ends, FrameSize.of(64), 1.0, 1.0, 1, 1)
        frame = build_template(traffic).frames[64].hex()
        python = sys.executable if self.machine.name is None else "python3"
        send = [python, "-c", SEND, path.source.interface, str(frames), frame]
        run_checked(self.hosts["source"], send)
        arrived = before
        while wait_until(lambda: self._arrived(path) != arrived, _SETTLE_S):  # noqa: B023 - called at once
            arrived = self._arrived(path)
        return arrived - before

    def _arrived(self, path: StreamPath) -> int:
        return self.machine.read_nics([path.sink.place])[path.sink.place].rx


def assert_declared(active: ActiveGuest, path: StreamPath, read: Reading | None = None) -> None:
    """Assert that every counter belongs to a point that the UUT declared on the stream's path, or to the tester's."""
    along = {point.name for point in whole_path(path, active.ready.points.get(path.name, ()))}
    readings = (read or active.uut.read()).counters
    assert {reading.point for reading in readings} <= along
    assert {reading.stream for reading in readings} <= {path.name, ""}


@contextmanager
def fresh_yard(name: str = "nbt-side") -> Iterator[Yard]:
    wanted = topology(2, name=name)
    journal = Journal.create(name)
    hosts: dict[str, Host] = {
        host: NamespaceHost(LocalHost(host, journal.run_id), f"nb-{name}-{host}") for host in ("source", "uut", "sink")
    }
    with Netlink() as netlink:
        machine = Machine(None, LocalHost("local", journal.run_id), record=journal, netlink=netlink)
        try:
            machine.make(base_changes(wanted))
            yield Yard(journal.run_id, hosts, machine, stream_paths(wanted))
        finally:
            end_marked_processes(journal.run_id)
            assert machine.undo() == []
            journal.remove()


def processes(host: Host) -> list[tuple[int, str]]:
    """The processes of a machine and their commands, without kernel threads and the process that lists them."""
    listing = 'for process in /proc/[0-9]*; do echo "${process#/proc/} $(tr "\\0\\n" "  " <$process/cmdline)"; done'
    output = run_checked(host, ["sh", "-c", listing])
    split = (line.partition(" ") for line in output.splitlines())
    return [(int(pid), words) for pid, _, words in split if words.strip() and "cmdline" not in words]


def groups() -> list[Path]:
    """The control groups of netbench on this machine."""
    return sorted(Path("/sys/fs/cgroup").rglob("nb-*"), key=lambda path: path.name)
