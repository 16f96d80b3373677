"""A VMM whose guests are network namespaces, attached by pairs of virtual Ethernet interfaces."""

import shlex
from collections.abc import Iterator

from netbench.errors import TestbedError
from netbench.hosts.base import Host
from netbench.hosts.composed import Namespaced
from netbench.linux.changes import AddNamespace, Change
from netbench.linux.proc import USER_HZ, parse_process
from netbench.vmm.attachment import Veth
from netbench.vmm.base import GuestOptions, GuestSpec, RunningGuest, Vmm

# What is in it lives as long as this process, which says its number first.
INIT = ["sh", "-c", "echo $$; exec sleep infinity"]


def netns(spec: GuestSpec) -> str:
    """The namespace of a guest, one of its run."""
    return f"nb-{spec.directory.name}"


class Namespaces(Vmm):
    """A network namespace of this machine: a guest that takes no time to start."""

    Options = GuestOptions
    own_kernel = False

    def needs(self) -> frozenset[str]:
        return frozenset({"netns"})

    def load_needs(self) -> frozenset[str]:
        return frozenset({"stress-ng"})

    def attachment(self, spec: GuestSpec) -> Veth:
        return Veth(netns(spec))

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        yield AddNamespace(netns(spec))

    def command(self, spec: GuestSpec) -> str:
        return shlex.join(["ip", "netns", "exec", netns(spec), *INIT])

    def start(self, spec: GuestSpec, host: Host) -> RunningGuest:
        return NamespaceGuest(spec, host)


class NamespaceGuest(RunningGuest):
    """A namespace, and the process that it is kept by."""

    def __init__(self, spec: GuestSpec, here: Host) -> None:
        super().__init__(spec)
        self.here, self.inside = here, Namespaced(here, netns(spec))
        self.process = self.inside.spawn(INIT)
        assert self.process.stdout
        self.pid = self.process.stdout.readline().strip()
        if self.death():
            raise TestbedError(self.death())

    def host(self, gone: type[TestbedError] = TestbedError) -> Host:
        return self.inside

    def death(self) -> str:
        code = self.process.poll()
        return "" if code is None else f"{self.spec.title}: its first process ended with exit code {code}"

    def cpu_s(self) -> float:
        return parse_process(self.here.read(f"/proc/{self.pid}/stat")).ticks / USER_HZ

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()
