"""Hosts of a topology: network namespaces, this machine, VMs that netbench starts, and machines reached by SSH."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from netbench.errors import KeyedError
from netbench.model.fields import BootLimit, Memory, Name, NicName, PortName, Seconds, Vcpus

# Text that ssh(1) cannot mistake for an option or a command.
SshWord = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_:~/%.][A-Za-z0-9_:~/%.@+-]*$", max_length=250)]


class PortSpec(BaseModel):
    """A port that the machine already has and the user lends to the testbed. Other addresses on it are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nic: PortName
    """Interface name."""
    addresses: tuple[str, ...] = ()
    """Addresses that the port may carry."""


def _port(value: object) -> object:
    return {"nic": value} if isinstance(value, str) else value


NicModel = Literal["virtio", "e1000", "e1000e", "vmxnet3"]
DeviceForward = Literal["bridge", "route", "flowtable", "tc"]
# The default of IEEE 802.1D-2004, table 17-1, in s; the kernel accepts 2 to 30 (net/bridge/br_private_stp.h).
_USUAL_DELAY_S = 15.0
_LEAST_DELAY_S, _MOST_DELAY_S = 2.0, 30.0


def _spanning_tree(value: object) -> object:
    return {True: _USUAL_DELAY_S, False: None}[value] if isinstance(value, bool) else value


ForwardDelay = Annotated[Seconds, Field(ge=_LEAST_DELAY_S, le=_MOST_DELAY_S)]
# The host must send a sign of life each second.
AnswerLimit = Annotated[Seconds, Field(ge=2, le=120)]
_GUARD_LATER_S = 4.0


@dataclass(frozen=True, slots=True)
class VmSpec:
    """A virtual machine that is a host: a netbench guest image, vCPUs, MiB of memory, seconds to boot.

    `nics` are its own NICs, by name, which are cabled to those of other such VMs. A VM with `forward` is a device under
    test: it is set up when it starts, and not accessed any more. `stp` is the forward delay of its bridges' spanning
    tree, in s; None: they have none.
    """

    image: str = "micro"
    cpus: int = 2
    memory: int = 512
    accelerator: str = "auto"
    boot_limit: float = 60.0
    nics: Mapping[str, NicModel] = field(default_factory=dict)
    forward: DeviceForward | None = None
    stp: float | None = None


class Password(BaseModel):
    """The source of a password, read at each connection; the password is in no topology and in no results."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    """Environment variable with the password."""
    file: str | None = None
    """File with the password."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError("give either env, the name of a variable of the environment, or file")
        return self


@dataclass(frozen=True, slots=True)
class SshSpec:
    """A machine reached by SSH. None means the user's own configuration of ssh (ssh_config(5)).

    `address` is an address or a name, or a Host of that configuration. `server` is `ssh` for an existing machine. For
    `netns` netbench emulates it: a namespace with this address and a separate SSH server. The machine counts as lost
    when it does not respond for `answer_limit` s.
    """

    address: str
    user: str | None = None
    ssh_port: int | None = None
    key: str | None = None
    known_hosts: str | None = None
    password: Password | None = None
    server: str = "ssh"
    answer_limit: float = 6.0

    @property
    def is_emulated(self) -> bool:
        """Whether netbench emulates the server."""
        return self.server == "netns"

    @property
    def silence_limit(self) -> float:
        """How long netbench's program there waits for the controller until it gives up, in s.

        This is longer than the controller waits, so that both agree which side is given up first.
        """
        return self.answer_limit + _GUARD_LATER_S


def _names(kind: type) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind))


_OF_KIND = {"vm": _names(VmSpec), "ssh": _names(SshSpec)}


class HostSpec(BaseModel):
    """A host with NICs: a network namespace, this machine, a virtual machine, or another machine by SSH."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["netns", "local", "vm", "ssh"] = "netns"
    """netns: a namespace made for the run. local: this machine. vm: a VM made for the run. ssh: another machine."""
    ports: dict[NicName, Annotated[PortSpec, BeforeValidator(_port)]] = {}
    """Existing ports lent to this host: NAME: eth1, or NAME: {nic: eth1, addresses: [192.0.2.7]}."""
    on: NicName | None = None
    """VM or SSH host on which this namespace is created."""
    image: Name | None = None
    """vm: guest image. Default: micro."""
    cpus: Vcpus | None = None
    """vm: vCPUs. Default: 2."""
    memory: Memory | None = None
    """vm: memory. Default: 512M."""
    accelerator: Literal["auto", "kvm", "tcg"] | None = None
    """vm: default auto."""
    boot_limit: BootLimit | None = None
    """vm: longest time to boot. Default: 60 s."""
    nics: dict[NicName, NicModel] | None = None
    """vm: NICs to be cabled to NICs of other VMs, with their models."""
    forward: DeviceForward | None = None
    """vm with `nics`: the VM is a device under test that forwards this way."""
    stp: Annotated[ForwardDelay | None, BeforeValidator(_spanning_tree)] = None
    """vm with `forward: bridge`: spanning tree with this forward delay; true: 15 s."""
    address: SshWord | None = None
    """ssh: address, name, or Host of ssh_config(5)."""
    user: SshWord | None = None
    """ssh: login name."""
    ssh_port: Annotated[int, Field(strict=True, ge=1, le=65535)] | None = None
    """ssh: TCP port."""
    key: SshWord | None = None
    """ssh: private key file."""
    known_hosts: SshWord | None = None
    """ssh: file with the host's key."""
    password: Password | None = None
    """ssh: where the password is read from; it is never stored."""
    server: Literal["ssh", "netns"] | None = None
    """ssh: netns lets netbench emulate the host."""
    answer_limit: AnswerLimit | None = None
    """ssh: time without an answer until the host is lost. Default: 6 s."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for kind, keys in _OF_KIND.items():
            for name in sorted(keys if self.kind != kind else ()):
                if getattr(self, name) is not None:
                    raise KeyedError(name, f"only a host of kind {kind} has this, not one of kind {self.kind}")
        if self.kind == "ssh" and self.address is None:
            raise KeyedError("address", "a host of kind ssh needs one; write for example address: 192.0.2.11")
        if self.password is not None and self.server == "netns":
            raise KeyedError("password", "an SSH server that netbench emulates uses a key; leave the password out")
        if self.on is not None and self.kind != "netns":
            raise KeyedError("on", f"only a host of kind netns is on another, not one of kind {self.kind}")
        if self.ports and self.kind == "vm":
            raise KeyedError("ports", "a VM has no ports of this machine; its own NICs are named under nics")
        if self.forward is not None and not self.nics:
            raise KeyedError("forward", "a VM that is a device under test has NICs; name them under nics")
        if self.stp is not None and self.forward != "bridge":
            raise KeyedError("stp", "only bridges have a spanning tree: `forward: bridge`")
        return self

    @property
    def vm(self) -> VmSpec | None:
        """The virtual machine of this host; None for other kinds."""
        return VmSpec(**self._given(_OF_KIND["vm"])) if self.kind == "vm" else None

    @property
    def ssh(self) -> SshSpec | None:
        """The SSH settings of this host; None for other kinds."""
        return SshSpec(**self._given(_OF_KIND["ssh"])) if self.kind == "ssh" else None

    def _given(self, names: Collection[str]) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}
