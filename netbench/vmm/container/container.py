"""VMM `container`: guests that share their machine's kernel, run by a container runtime."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from netbench.errors import KeyedError, MachineGoneError, TestbedError, UsageError
from netbench.hosts.base import GoneError, Host, run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.host_wrappers import ConfinedHost, NamespaceHost, outside
from netbench.hosts.local import MARK
from netbench.hosts.pipes import Tail, end
from netbench.images.library import DEFAULT_IMAGE, find_image
from netbench.images.on_host import root_on, roots
from netbench.linux.changes import AddNamespace, AddRunDirectory, Change
from netbench.linux.proc import is_there, memory_of, processes_of
from netbench.linux.requirements import ON_VETH, Command, Facility, Feature, Probes, require_on_host
from netbench.model.fields import Memory
from netbench.model.paths import StreamPath
from netbench.model.virtualisation import DurationEstimate, Virtualisation
from netbench.vmm.attachment import MASQUERADE, Attachment, macvlan, refuse_attachment, veth
from netbench.vmm.base import GuestOptions, GuestSpec, RunningGuest, Vmm, on_vm
from netbench.vmm.connected_guest import LAST_WORDS_S, ConnectedGuest, GuestByCommand, stopped_on_error
from netbench.vmm.container.cgroups import MEMINFO, MEMORY_GROUPS, AddMemoryGroup, cgroup_procs_files, with_limit
from netbench.vmm.container.libvirt_lxc import PACKAGES, ExistingLxc, LibvirtLxc, find_lxc_driver
from netbench.vmm.container.runtime import Lxc, Podman, Root, Runtime
from netbench.vmm.libvirt.api import BINDINGS
from netbench.vmm.libvirt.domain import driver_sign


class ContainerHost(GuestByCommand):
    """A container as a host, found by its first process; GoneError once that has ended.

    It has its own files: those of the machine have other paths inside it.
    """

    def __init__(self, spec: GuestSpec, outside: Host, machine: Host, pid: int, memory_mib: int | None = None) -> None:
        """`memory_mib` limits the memory of all its processes together; None: no separate limit."""
        super().__init__(spec, outside)
        self._machine = machine
        self._pid = pid
        self._memory_mib = memory_mib

    def read(self, path: str) -> str:
        """Return the content of a file; available memory is capped at its limit, so that no load exceeds it."""
        text = super().read(path)
        return with_limit(text, self._memory_mib) if path == MEMINFO and self._memory_mib else text

    def _command(self, argv: Sequence[str]) -> list[str]:
        self._require_alive()
        return ["nsenter", "--target", str(self._pid), "--all", "--", *argv]

    def _require_alive(self) -> None:
        if not is_there(self._machine, self._pid):
            raise GoneError(f"{self}: its first process has ended")


_RUNTIMES: Mapping[str, Callable[[], Runtime]] = {"lxc": Lxc, "podman": Podman, "libvirt": LibvirtLxc}
_LIBVIRT_HERE = r"^lxc(\+unix)?:///"  # local connections only: files of another machine are not accessible
_READY = "netbench-container: ready"
# A shell that also reaps orphans, as the first process of a container must (wait(2)).
_INIT = ["/bin/sh", "-c", f"echo {_READY}; while :; do sleep 2147483647 & wait; done"]
_BEFORE_ITS_OWN = ["/bin/sh", "-c", f'echo {_READY}; exec "$@"', "sh"]  # if the container has its own first process
# Prints its process id. A runtime keeps the state of its containers below /run: there it sees the guest's directory. It
# sees no control groups. Both mounts are private: `ip netns exec` unshares the mount namespace. The mark of the run is
# passed on to the container. It is empty in a VM, which ends with the run anyway.
_START = f'export {MARK}="${{{MARK}-}}" && '
_START += 'echo $$ && mount --bind "$0" /run && mount -t tmpfs netbench /sys/fs/cgroup && exec "$@"'
_ATTACHED_OTHERWISE = {
    "macvtap": "macvtap needs a guest with its own kernel; for a container use macvlan",
    **dict.fromkeys(("user", "passt"), "user networking needs a guest of kind qemu; for a container use bridge or nat"),
}
_FIRST = 1  # the process id of its first process inside the container
_END_S = 5.0
_POLL_S = 0.005
_FORWARDED_BY = "the host's kernel, in softirqs not charged to the container: cpu_host_s covers its processes only"


class ContainerOptions(GuestOptions):
    """A container that forwards between two virtual Ethernet interfaces per stream.

    `root` selects its programs: those of its `host`, or of a guest `image`. `image` is the name of a guest image made
    by `netbench image build`, or the path (with a `/`) of a directory of its host with a root file system. `memory`
    limits the memory of all its processes together, rounded to MiB; None: that of the machine. `domain` is the name of
    a domain defined at the libvirt `uri`; the container is a copy of it, with the root and memory of that domain.
    """

    runtime: Literal["lxc", "podman", "libvirt"] = "lxc"
    """Container runtime."""
    attachment: Annotated[
        Literal["bridge", "macvlan", "nat"], BeforeValidator(partial(refuse_attachment, others=_ATTACHED_OTHERWISE))
    ] = "bridge"
    """bridge: bridged. macvlan: virtual NICs on NICs of the host, with routing. nat: a private network; serves only."""
    memory: Memory | None = None
    """Memory limit of all processes, without swap. Default: none."""
    root: Literal["host", "image"] = "host"
    """Programs of the host, or of a guest image."""
    image: str = DEFAULT_IMAGE
    """root: image: guest image, or path (with a /) of a root file system."""
    uri: Annotated[str, Field(pattern=_LIBVIRT_HERE)] | None = None
    """libvirt that defines `domain`. Default: lxc:///system."""
    domain: Annotated[str, Field(min_length=1)] | None = None
    """runtime: libvirt: defined container of which this one is a copy."""

    @property
    def is_directory(self) -> bool:
        """Whether `image` is a directory of the user's."""
        return "/" in self.image

    @model_validator(mode="after")
    def _fits(self) -> "ContainerOptions":
        if self.domain is None and self.uri is not None:
            raise KeyedError("uri", "it is for `domain`; netbench's own containers use a private libvirtd")
        if self.domain is not None and self.runtime != "libvirt":
            raise KeyedError("domain", "set runtime: libvirt, which has the domain")
        for option in ("root", "image", "memory") if self.domain is not None else ():
            if option in self.model_fields_set:
                raise KeyedError(option, "leave it out; with `domain` it is as the domain has it")
        if self.root == "host" and self.image != DEFAULT_IMAGE:
            raise KeyedError(
                "image", "it is for root: image; with root: host a container has the programs of its machine"
            )
        if self.attachment == "macvlan" and self.forward not in ("route", "flowtable"):
            raise KeyedError(
                "attachment", "a macvlan receives only frames to its own MAC address; use forward: route, or bridge"
            )
        if self.attachment == "nat":
            self.refuse_forwarding(self.attachment)
        if self.runtime == "libvirt" and self.memory:
            raise KeyedError("memory", "libvirt makes its own control groups; use runtime lxc or podman for a limit")
        return self


class Container(Vmm):
    """A container with a separate network namespace: frames pass through its machine's kernel.

    Its CPU entitlement applies to all its processes. Frames are forwarded by softirqs, which belong to no process: it
    limits them only where the threads of its links are limited.
    """

    options: ContainerOptions
    Options: ClassVar[type[GuestOptions]] = ContainerOptions
    may_need = (
        Command("lxc-start", "lxc", "containers", optional=True, version="--version"),
        Command("podman", "podman", "containers with `runtime: podman`", optional=True, version="--version"),
        Command("crun", "crun", "containers with `runtime: podman`", optional=True),
        Facility(
            "libvirt-lxc",
            "containers with `runtime: libvirt`",
            f"apt-get install {' '.join(PACKAGES)}",
            find_lxc_driver,
            signs=("libvirtd", "virsh", driver_sign("lxc")),
            packages=PACKAGES,
        ),
        BINDINGS,
        Command("nsenter", "util-linux", "commands inside containers", optional=True),
        MEMORY_GROUPS,
        MASQUERADE,
        Feature(
            "macvlan",
            "containers on NICs of the host",
            ON_VETH,
            "CONFIG_MACVLAN",
            "macvlan",
            Probes.macvlan,
            optional=True,
        ),
    )
    kinds = (Virtualisation.OS_LEVEL,)
    supports = replace(Vmm.supports, attachments=("veth", "macvlan", "veth behind NAT"))
    pace: ClassVar[DurationEstimate] = DurationEstimate(bring_up_s=0.6, trial_s=0.15)

    def __init__(self, options: ContainerOptions) -> None:
        super().__init__(options)
        self._runtime = (
            _RUNTIMES[options.runtime]() if options.domain is None else ExistingLxc(options.domain, options.uri)
        )
        self.applies_cpu_shares = self._runtime.applies_cpu_shares

    def check(self, paths: Sequence[StreamPath]) -> None:
        """Raise UsageError for a root that is unsuitable."""
        # A root on another machine is checked there at the start; that includes guests without streams.
        if self.options.is_directory and not on_vm(paths):
            directory = Path(self.options.image)
            if refusal := self._refusal(directory.resolve(), is_there=not paths or directory.is_dir()):
                raise UsageError(refusal)

    def needs(self) -> frozenset[str]:
        of_image = {"cpio", f"image:{self.options.image}"} if self._of_image else set()
        memory = {MEMORY_GROUPS.name} if self.options.memory else set()
        return frozenset({"netns", "nsenter"} | self._runtime.needs | of_image | memory)

    def load_needs(self) -> frozenset[str]:
        return frozenset({"stress-ng"} if self.options.root == "host" and self.options.domain is None else ())

    def attachment(self, spec: GuestSpec) -> Attachment:
        return macvlan(spec.own_netns) if self.options.attachment == "macvlan" else veth(spec.own_netns)

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        yield AddRunDirectory(str(spec.directory))
        yield AddNamespace(spec.own_netns)
        yield from self._runtime.changes(spec)
        if group := self._memory_group(spec):
            yield group

    def command(self, spec: GuestSpec) -> str:
        planned = roots() / "DIGEST" if self._of_image else self._directory
        group = self._memory_group(spec)
        own = self._runtime.cgroup_procs(spec)
        cgroups = (f"{group.path}/cgroup.procs",) if group else (own,) if own else ()
        return shlex.join(["ip", "netns", "exec", spec.own_netns, *self._start(spec, Root(planned), cgroups)])

    def start(self, spec: GuestSpec, host: Host) -> RunningGuest:
        machine, options = outside(host), self.options
        require_on_host(machine, (need for need in self.may_need if need.name in self.needs()))
        root = Root.found(machine, self._source(machine))
        if options.domain is None:
            root.lay_out(machine, spec.directory / "root")
        self._runtime.prepare(spec, machine, machine.run(["sh", "-c", f'echo "${MARK}"']).stdout.strip())
        version = run_checked(host, self._runtime.version).split()[-1]
        facts = {"runtime": f"{options.runtime} {version}", "root": self._root_fact(), **self._runtime.facts()}
        facts |= {"memory": f"{options.memory} MiB"} if options.memory else {}
        cgroups = cgroup_procs_files(host, self._runtime.cgroup_procs(spec), self._memory_group(spec))
        guest = ContainerGuest(spec, host, self._runtime, cgroups, options.memory)
        with stopped_on_error(guest):
            guest.start(self._start(spec, root, cgroups), {**facts, "forwarded_by": _FORWARDED_BY})
        return guest

    def _memory_group(self, spec: GuestSpec) -> AddMemoryGroup | None:
        shares = Path(spec.cgroup_procs).parent.name if spec.cgroup_procs else ""
        return AddMemoryGroup(spec.own_netns, self.options.memory, shares) if self.options.memory else None

    @property
    def _of_image(self) -> bool:
        return self.options.root == "image" and not self.options.is_directory

    @property
    def _directory(self) -> Path:
        """The root file system whose programs a container uses, unless it is one of netbench's images."""
        return Path(self.options.image if self.options.root == "image" else "/")

    def _source(self, machine: Host) -> Path:
        """Return the path of the root on a machine; TestbedError if it cannot be the root of a container."""
        if self._of_image:
            return root_on(find_image(self.options.image), machine)
        if not self.options.is_directory:
            return self._directory
        resolved = machine.run(["readlink", "-f", "--", self.options.image]).stdout.strip()
        is_there = bool(resolved) and machine.run(["test", "-d", resolved]).exit_code == 0
        if refusal := self._refusal(Path(resolved or self.options.image), is_there=is_there):
            raise TestbedError(f"{machine}: {refusal}")
        return Path(resolved)

    def _refusal(self, directory: Path, *, is_there: bool) -> str:
        """Return why a directory cannot be the root of a container; empty if it can."""
        if not is_there:
            return f"image: there is no directory {self.options.image} for the root of a container"
        if directory.is_relative_to("/run"):
            return f"image: {directory} is below /run, which the runtime of a container replaces"
        if self.options.runtime == "podman" and "," in str(directory):
            return f"image: podman ends a path at the comma in {directory}: rename it"
        return ""

    def _start(self, spec: GuestSpec, root: Root, cgroups: Sequence[str]) -> list[str]:
        init = _INIT if self.options.domain is None else _BEFORE_ITS_OWN
        return ["sh", "-c", _START, str(spec.directory), *self._runtime.command(spec, root, init, cgroups)]

    def _root_fact(self) -> str:
        if self.options.domain is not None:
            return f"domain {self.options.domain}"
        if not self._of_image:
            return self.options.image if self.options.root == "image" else "host"
        return f"image {find_image(self.options.image).fact}"


class ContainerGuest(ConnectedGuest):
    """A container, represented by the process of its runtime, which lives as long as its first process does."""

    def __init__(
        self, spec: GuestSpec, host: Host, runtime: Runtime, cgroups: Sequence[str] = (), memory_mib: int | None = None
    ) -> None:
        """`cgroups` are the cgroup.procs files of its control groups; one of these groups limits it to `memory_mib`."""
        super().__init__(spec, host)
        self._runtime = runtime
        self._cgroups = cgroups
        self._memory_mib = memory_mib
        self._leader = 0  # the process of its runtime
        self._first = 0  # its first process, once it is known

    def start(self, command: Sequence[str], facts: Mapping[str, str]) -> None:
        """Start it; TestbedError, with the message of its runtime, when that ends at once."""
        self._facts = facts
        self.process = NamespaceHost(self._host, self.spec.own_netns).spawn(command)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._complaint = Tail(self.process.stderr)
        # One reader for the process id and the console: late callers find both complete.
        self._console = output = Tail(self.process.stdout)
        wait_until(lambda: "\n" in output.text() or self._is_over, _END_S, _POLL_S)
        try:
            self._leader = int(output.text().partition("\n")[0])
        except ValueError as error:
            words = self._last_words()
            raise TestbedError(f"{self.spec.title}: its runtime cannot be started: {words}") from error

    def await_answer(self, limit_s: float) -> None:
        """Return once its first process runs; TestbedError when it does not run or has ended."""
        wait_until(lambda: _READY in self.console() or bool(self.death()), limit_s, _POLL_S)
        if death := self.death():
            raise TestbedError(death)
        if _READY not in self.console():
            raise TestbedError(f"{self.spec.title}: its first process does not run {limit_s:g} s after its start")
        pids = self._runtime.first_processes(self._machine, self.spec.directory, self._leader)
        if len(pids) != 1:
            problem = f"its runtime lists {len(pids)} first processes instead of one"
            raise TestbedError(self.end_just_now() or f"{self.spec.title}: {problem}")
        (self._first,) = pids
        confined: Host = ConfinedHost(self._host, self.spec.host_cpus)
        for procs in self._cgroups:
            confined = ConfinedHost(confined, (), procs)
        inside = ContainerHost(self.spec, confined, self._machine, self._first, self._memory_mib)
        self.connect_by(inside, self._facts)

    def death(self) -> str:
        """Return the cause of death, as every guest does; MachineGoneError if its whole machine is gone."""
        # A runtime may not notice the end of a container that is no longer waited for.
        gone = not is_there(self._machine, self._first or self._leader)
        code = self.process.poll() if self.process else None
        if code is None:
            return f"{self.spec.title}: its first process has ended" if self._first and gone else ""
        words = self._last_words()
        return f"{self.spec.title}: the container ended with exit code {code}" + (f": {words}" if words else "")

    def memory_bytes(self) -> int | None:
        """Return the memory of all its processes."""
        return memory_of(self._machine, self._proc)

    def cpu_s(self) -> float:
        """Return the CPU time of all its processes so far, in seconds, with the reaped children of the first one."""
        processes = processes_of(self._machine, self._proc)
        if _FIRST not in (process.pid for process in processes):
            raise TestbedError(self.end_just_now() or f"{self.spec.title}: its processes cannot be seen")
        return sum(process.cpu_s + (process.children_s if process.pid == _FIRST else 0.0) for process in processes)

    def console(self) -> str:
        return self._console.text().partition("\n")[2] if self._console else ""

    def stop(self) -> None:
        """Kill all processes in its network namespace, which is its alone, until none are left: it may be starting."""
        if self.process:
            end(self.process)
        with suppress(MachineGoneError):  # the container is gone with its machine
            wait_until(lambda: not self._kill_all(), _END_S, _POLL_S)

    def _kill_all(self) -> bool:
        """Kill the processes and return whether there were any; none once the namespace is gone."""
        pids = self._machine.run(["ip", "netns", "pids", self.spec.own_netns]).stdout.split()
        if pids:
            self._machine.run(["sh", "-c", 'kill -KILL "$@"', "sh", *pids])  # fails for processes that have ended
        return bool(pids)

    @property
    def _proc(self) -> str:
        """Its /proc, as a path on its machine."""
        return f"/proc/{self._first}/root/proc"

    def _last_words(self) -> str:
        lines = self._complaint.text(LAST_WORDS_S).strip().splitlines()
        return lines[-1] if lines else ""
