"""A VMM whose guests are network namespaces, attached by pairs of virtual Ethernet interfaces."""

import shlex
from collections.abc import Iterator
from dataclasses import replace

from netbench.errors import TestbedError
from netbench.hosts.base import Host
from netbench.hosts.host_wrappers import NamespaceHost
from netbench.linux.changes import AddNamespace, Change
from netbench.linux.proc import memory_bytes, read_process
from netbench.model.virtualisation import Virtualisation
from netbench.vmm.attachment import Attachment, veth
from netbench.vmm.base import GuestSpec, RunningGuest, Vmm

# The namespace lives as long as this process, which prints its process id first.
INIT = ["sh", "-c", "echo $$; exec sleep infinity"]


class Namespaces(Vmm):
    """A network namespace of this machine: a guest that takes no time to start."""

    kinds = (Virtualisation.OS_LEVEL,)
    supports = replace(Vmm.supports, attachments=("veth",))

    def needs(self) -> frozenset[str]:
        return frozenset({"netns"})

    def load_needs(self) -> frozenset[str]:
        return frozenset({"stress-ng"})

    def attachment(self, spec: GuestSpec) -> Attachment:
        return veth(spec.own_netns)

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        yield AddNamespace(spec.own_netns)

    def command(self, spec: GuestSpec) -> str:
        return shlex.join(["ip", "netns", "exec", spec.own_netns, *INIT])

    def start(self, spec: GuestSpec, host: Host) -> RunningGuest:
        return NamespaceGuest(spec, host)


class NamespaceGuest(RunningGuest):
    """A namespace, and the process that it is kept by."""

    def __init__(self, spec: GuestSpec, here: Host) -> None:
        super().__init__(spec)
        self.inside = NamespaceHost(here, spec.own_netns)
        self.process = self.inside.spawn(INIT)
        assert self.process.stdout
        self.pid = self.process.stdout.readline().strip()

    def host(self, gone: type[TestbedError] = TestbedError) -> Host:
        return self.inside

    def cpu_s(self) -> float:
        return read_process(self.pid).cpu_s

    def memory_bytes(self) -> int | None:
        return memory_bytes(int(self.pid))
