"""Existing domains of Xen, as listed by xl; also used on the machine itself, where changes are undone."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host, refusal, run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.remote_code import has_netbench
from netbench.images.library import find_image
from netbench.images.on_host import brought, require_in_vm
from netbench.linux.changes import Change, MachineState
from netbench.linux.changes.base import not_ours
from netbench.model.paths import PREFIX
from netbench.vmm.attachment import Attachment, host_mac
from netbench.vmm.boot_disc import disc_of

REMEDY = "apt-get install xen-system-amd64 and boot that; or measure inside a VM: topology lab-xen"
KERNEL, INITRD, DISC = "KERNEL", "INITRD", "DISC"  # placeholders in a config, until the machine's paths are known
_PAUSED = "is paused"
_STATES = {"p": _PAUSED, "s": "has shut down", "c": "has crashed", "d": "is dying"}
_ROW = re.compile(r"^(?P<name>\S+)\s+(?P<id>\d+)\s+(?P<mib>\d+)\s+(?P<vcpus>\d+)\s+(?P<state>\S+)\s+(?P<cpu_s>[\d.]+)")


@dataclass(frozen=True, slots=True)
class DomainState:
    """A row of `xl list` (xl(1)); CPU time in seconds, to 0.1 s, of all its vCPUs since its creation."""

    number: int
    memory_mib: int
    vcpus: int
    trouble: str  # why it does not run: `has crashed`; empty while it does
    cpu_s: float

    @property
    def is_paused(self) -> bool:
        """Whether somebody has paused it, without any other trouble."""
        return self.trouble == _PAUSED


def parse_list(text: str) -> dict[str, DomainState]:
    """Return the domains of `xl list` by name."""
    found = {}
    for line in text.splitlines():
        if row := _ROW.match(line):
            trouble = next((words for letter, words in _STATES.items() if letter in row["state"]), "")
            number, mib, vcpus = int(row["id"]), int(row["mib"]), int(row["vcpus"])
            found[row["name"]] = DomainState(number, mib, vcpus, trouble, float(row["cpu_s"]))
    return found


def require_xl(host: Host) -> None:
    """Raise MissingError unless the machine has Xen's `xl`."""
    if not has_netbench(host):
        require_in_vm(host, "xen", "xl")
    elif host.run(["which", "xl"]).exit_code != 0:
        raise MissingError(f"{host} has no `xl`: {REMEDY}")


def listed(host: Host, name: str) -> DomainState | None:
    """Return a domain, None if it does not exist; TestbedError when `xl list` fails."""
    done = host.run(["xl", "list", name])
    if done.exit_code == 0:
        return parse_list(done.stdout).get(name)
    if "invalid domain" in done.stderr:
        return None
    raise refusal(f"{host}: `xl list` failed with exit code {done.exit_code}", done.stderr.strip())


def domain_0(host: Host) -> DomainState:
    """Return domain 0, which has the hardware and serves the other domains."""
    domains = parse_list(run_checked(host, ["xl", "list"])).values()
    try:
        return next(domain for domain in domains if domain.number == 0)
    except StopIteration:
        raise TestbedError(f"{host}: `xl list` names no domain 0") from None


def backend(domain: int | str, device: int, nic: str) -> str:
    """Return the initial name of domain 0's end of that domain's NIC: Xen's own, or that of the tap of its QEMU."""
    return f"vif{domain}.{device}" + ("" if nic == "vif" else "-emu")


_CREATE_S = 120.0
_LINK_S = 10.0
_DESTROY_S = 60.0


@dataclass(frozen=True, slots=True)
class AddDomain(Change):
    """A paused domain: its NICs exist, and it has not run yet. Undo destroys it.

    `config` is the configuration for xl, stored as `file`; KERNEL and INITRD, or DISC, are placeholders for the files
    of `image`. `disc_words` is the kernel command line on that disc; empty where no disc is needed.
    """

    name: str
    file: str
    config: str
    image: str
    disc_words: str = ""

    @property
    def _create(self) -> Sequence[str]:
        # No process that waits for the domain's end (-e): netbench monitors it.
        return "xl", "create", "-p", "-e", "-q", self.file

    @property
    def command(self) -> str:
        return f"cat >{shlex.quote(self.file)} <<'END'\n{self.config}END\n{shlex.join(self._create)}"

    def with_former_state(self, state: MachineState) -> Self:
        require_xl(state.host)
        if listed(state.host, self.name):
            raise not_ours(f"the domain {self.name}")
        return self

    def make(self, host: Host) -> None:
        host.write(self.file, self._complete(host))
        done = host.run(self._create, timeout_s=_CREATE_S)
        if done.exit_code != 0:
            destroy(host, self.name)  # xl leaves parts of a domain that it could not finish
            words = [line for line in done.stderr.splitlines() if "Parsing config" not in line]
            raise refusal(f"xl cannot create the domain {self.name}", "; ".join(words) or "no message")

    def _complete(self, host: Host) -> str:
        """Return the config with the paths of files on the machine."""
        image = find_image(self.image)
        if self.disc_words:
            return self.config.replace(
                f"file={DISC}", f"file={disc_of(image, self.disc_words, host, Path(self.file).parent)}"
            )
        files = brought(image, host)
        return self.config.replace(f'"{KERNEL}"', f'"{files.kernel}"').replace(f'"{INITRD}"', f'"{files.initrd}"')

    def undo(self, host: Host) -> None:
        if self.name.startswith(PREFIX):
            destroy(host, self.name)


@dataclass(frozen=True, slots=True)
class PlaceVif(Change):
    """Renames domain 0's end of a domain's NIC `device` to `interface` and moves it to a namespace.

    It is removed with the domain.
    """

    domain: str
    device: int
    model: str
    netns: str | None
    interface: str
    mac: str

    @property
    def command(self) -> str:
        return " && ".join(map(shlex.join, self._commands(backend("DOMID", self.device, self.model))))

    def with_former_state(self, state: MachineState) -> Self:
        state.refuse_existing(self.netns, self.interface)
        return self

    def make(self, host: Host) -> None:
        domain = listed(host, self.domain)
        if domain is None:
            raise TestbedError(f"there is no domain {self.domain} any more")
        link = backend(domain.number, self.device, self.model)
        if not wait_until(lambda: host.run(["ip", "link", "show", "dev", link]).exit_code == 0, _LINK_S):
            raise TestbedError(f"Xen made no {link} for the domain {self.domain} within {_LINK_S:g} s")
        for command in self._commands(link):
            run_checked(host, command)

    def _commands(self, initial: str) -> Sequence[Sequence[str]]:
        link = ("ip", "link", "set", "dev")
        named = [*link, initial, "address", host_mac(self.mac), "name", self.interface]
        return [named, [*link, self.interface, "netns", self.netns]] if self.netns else [named]


def attachment_of(domain: str, model: str, interfaces: Sequence[str]) -> Attachment:
    """Return domain 0's ends of NICs, which Xen creates with the domain; they are renamed and moved.

    Frames that a domain has not received by a vif for ten seconds are dropped, and counted as if it had sent them
    (xenvif_rx_queue_drop_expired in the kernel's drivers/net/xen-netback/rx.c). Other models are emulated by a QEMU in
    domain 0, whose taps count like any tap.
    """

    def changes(netns: str | None, interface: str, mac: str, nic: str) -> Iterator[Change]:
        yield PlaceVif(domain, interfaces.index(interface), model, netns, interface, mac)

    if model == "vif":
        return Attachment("vif", frozenset(), changes, dropped_too=("rx_dropped",))
    return Attachment("tap", frozenset({"tun"}), changes)


def destroy(host: Host, name: str) -> None:
    """End a domain at once if it exists; TestbedError with the message of xl."""
    if listed(host, name):
        run_checked(host, ["xl", "destroy", name], timeout_s=_DESTROY_S)
