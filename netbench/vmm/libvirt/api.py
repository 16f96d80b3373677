"""libvirt's API, with a time limit for each call: its bindings wait forever for a daemon that hangs."""

import importlib
import shlex
import sys
import threading
import uuid
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Self, TypeVar
from urllib.parse import parse_qs, urlsplit

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host, exists, machine_name
from netbench.hosts.relay import within_reach
from netbench.linux.changes import Change, MachineState
from netbench.linux.changes.base import not_ours
from netbench.linux.requirements import Facility
from netbench.model.paths import PREFIX

R = TypeVar("R")

_ANSWER_S = 20.0
# Sockets of system daemons: that of the daemon for all drivers, or by driver that of a modular daemon (libvirtd(8)).
_MAIN_SOCKET = "/run/libvirt/libvirt-sock"
_DRIVER_SOCKETS = {"qemu": "/run/libvirt/virtqemud-sock", "lxc": "/run/libvirt/virtlxcd-sock"}
# Where Debian's package python3-libvirt installs the bindings; virtual environments do not search there.
_DEBIAN = "/usr/lib/python3/dist-packages"
REMEDY = "apt-get install python3-libvirt, or pip install 'netbench[libvirt]' (with libvirt-dev, pkg-config and gcc)"


def libvirt_module(name: str = "libvirt") -> ModuleType:
    """Return one of libvirt's Python bindings, from this Python or else Debian's; MissingError without them."""
    try:
        return importlib.import_module(name)
    except ImportError:
        sys.path.append(_DEBIAN)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingError(f"libvirt's Python bindings are not installed ({error}): {REMEDY}") from error
    finally:
        sys.path.remove(_DEBIAN)


def _version(number: int) -> str:
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"


def find_bindings(_: str) -> str:
    """Return the version of libvirt that the bindings are for; MissingError without them."""
    return f"of libvirt {_version(libvirt_module().getVersion())}"


BINDINGS = Facility("libvirt-python", "guests of libvirt: its Python bindings", REMEDY, find_bindings)


class LibvirtError(TestbedError):
    """An error that libvirt itself reported, with its `code` (virErrorNumber)."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class LibvirtConnection:
    """A connection to a libvirtd. Every method raises TestbedError, with the prefix `whose`, when it fails.

    A connection to another host is relayed through that Host: only this machine needs the bindings. `api` is libvirt's
    Python module; its domains have no types.
    """

    def __init__(self, whose: str, uri: str, host: Host | None = None) -> None:
        """`uri` is written as on that host (None: this machine)."""
        self.whose = whose
        self.uri = uri
        self.api: Any = libvirt_module()
        # The default handler also prints errors to stderr.
        self.api.registerErrorHandler(lambda _, __: None, None)
        with ExitStack() as way:
            near = self._near(host, way) if host and machine_name(host) else uri
            self._connection: Any = self.call(f"libvirt at {uri} cannot be reached", lambda: self.api.open(near))

    def defined(self, name: str) -> str:
        """Return the XML of a domain that is shut off, for its next start; TestbedError if it is running."""
        domain = self.call("libvirt does not describe its domain", lambda: self._lookup(name))
        if domain is None:
            domains = self.call("libvirt lists no domains", self._connection.listAllDomains)
            existing = ", ".join(sorted(domain.name() for domain in domains)) or "none"
            raise TestbedError(f"{self.whose}: there is no domain {name} at {self.uri}, which has: {existing}")
        if self.call("libvirt does not report the state of its domain", domain.isActive):
            shut_down = shlex.join(["virsh", "-c", self.uri, "shutdown", name])
            raise TestbedError(
                f"{self.whose}: domain {name} is running, and its disks and directories cannot serve two guests: "
                f"shut it down ({shut_down}), or define another one for netbench"
            )
        inactive = self.api.VIR_DOMAIN_XML_INACTIVE
        xml: str = self.call("libvirt does not describe its domain", lambda: domain.XMLDesc(inactive))
        return xml

    def has(self, name: str) -> bool:
        """Return whether a domain of this name exists, running or not."""
        return self.call("libvirt does not list its domains", lambda: self._lookup(name)) is not None

    def create(self, xml: str) -> Any:  # noqa: ANN401 - libvirt's bindings have no types
        """Start a transient domain, paused, and return it; its daemon ends it when this connection closes."""
        flags = self.api.VIR_DOMAIN_START_PAUSED | self.api.VIR_DOMAIN_START_AUTODESTROY
        return self.call("libvirt cannot start its domain", lambda: self._connection.createXML(xml, flags))

    def state(self, domain: Any, *, resumed: bool) -> str:  # noqa: ANN401 - as above
        """Return why a domain is not running; empty when it is, or when it is paused and was never `resumed`."""
        try:
            state = self.call("libvirt does not report the state of its domain", lambda: domain.state()[0])
        except LibvirtError as error:
            if error.code == self.api.VIR_ERR_NO_DOMAIN:
                return "libvirt has no such domain any more: it was destroyed, or it has crashed"
            raise
        reasons = {
            self.api.VIR_DOMAIN_BLOCKED: "",
            self.api.VIR_DOMAIN_RUNNING: "",
            self.api.VIR_DOMAIN_PAUSED: "it is paused" if resumed else "",
            self.api.VIR_DOMAIN_SHUTOFF: "it is shut off",
            self.api.VIR_DOMAIN_CRASHED: "it has crashed",
        }
        return reasons.get(state, f"libvirt reports state {state}")

    def version(self) -> str:
        """Return the version of its daemon."""
        return _version(self.call("libvirt does not report its version", self._connection.getLibVersion))

    def destroy_own(self, uuid: str) -> None:
        """End the domain with this UUID at once, also during its start; harmless if it does not exist (any more)."""
        try:
            self.call("libvirt cannot end its domain", lambda: self._connection.lookupByUUIDString(uuid).destroy())
        except LibvirtError as error:
            if error.code not in (self.api.VIR_ERR_NO_DOMAIN, self.api.VIR_ERR_OPERATION_INVALID):
                raise

    def close(self) -> None:
        """Close the connection."""
        self.call("libvirt does not close the connection", self._connection.close)

    def call(self, problem: str, call: Callable[[], R]) -> R:
        """Return the result of a call of libvirt's API; LibvirtError with this `problem` when that fails.

        It runs in its own thread, which a daemon that hangs may block forever: TestbedError after 20 s.
        """
        answers: list[R] = []
        errors: list[Any] = []

        def work() -> None:
            try:
                answers.append(call())
            except Exception as error:  # our own defects too are raised again in the calling thread
                errors.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(_ANSWER_S)
        if errors and not isinstance(errors[0], self.api.libvirtError):
            raise errors[0]
        if errors:
            code = errors[0].get_error_code()
            raise LibvirtError(f"{self.whose}: {problem}: {errors[0]}", code) from errors[0]
        if not answers:
            raise TestbedError(f"{self.whose}: {problem}: no answer within {_ANSWER_S:g} s")
        return answers[0]

    def _near(self, host: Host, way: ExitStack) -> str:
        """Return the URI on this machine of another host's daemon, valid while `way` is open."""
        try:
            driver, remote = _socket_of(self.uri, host)
            socket = way.enter_context(within_reach(host, remote))
        except TestbedError as error:
            raise TestbedError(f"{self.whose}: {error}") from error
        return f"{driver}+unix:///system?socket={socket}"

    def _lookup(self, name: str) -> Any:  # noqa: ANN401 - as above
        try:
            return self._connection.lookupByName(name)
        except self.api.libvirtError as error:
            if error.get_error_code() == self.api.VIR_ERR_NO_DOMAIN:
                return None
            raise


def _socket_of(uri: str, host: Host) -> tuple[str, str]:
    """Return the driver of a URI, and the socket of the daemon on the host that it addresses.

    TestbedError if the URI addresses a daemon elsewhere.
    """
    parts = urlsplit(uri)
    driver = parts.scheme.removesuffix("+unix")
    if driver not in _DRIVER_SOCKETS or parts.netloc or parts.path != "/system":
        usual = "lxc" if driver.startswith("lxc") else "qemu"
        raise TestbedError(
            f"uri {uri} leads away from {host}: use that of a daemon on that host, {usual}:///system or "
            f"{usual}+unix:///system?socket=PATH"
        )
    if paths := parse_qs(parts.query).get("socket"):
        return driver, paths[0]
    own = _DRIVER_SOCKETS[driver]
    return driver, own if not exists(host, _MAIN_SOCKET) and exists(host, own) else _MAIN_SOCKET


_NAMES = uuid.UUID("5f0c7f0e-6c1b-4d43-9b1e-0a4a3f2f6b5d")  # namespace of the domains' UUIDs: arbitrary, but fixed


def own_uuid(name: str) -> str:
    """Return the UUID of netbench's domain `name`: it distinguishes the domain from others of the same name."""
    return str(uuid.uuid5(_NAMES, name))


@dataclass(frozen=True, slots=True)
class AddLibvirtDomain(Change):
    """Reserves the name `name` at `uri` for a domain of netbench, identified by its UUID; undo ends the domain.

    Starting the guest creates the domain. libvirt itself ends it once the netbench that created it has gone. This
    change covers the cases in which libvirt does not notice that.
    """

    uri: str
    name: str

    @property
    def command(self) -> str:
        """A command that succeeds if no domain has that name."""
        return f"! {shlex.join(['virsh', '-c', self.uri, 'domuuid', self.name])}"

    def with_former_state(self, state: MachineState) -> Self:
        with closing(self._connection(state.host)) as libvirt:
            if libvirt.has(self.name):
                raise not_ours(f"the domain {self.name} at {self.uri}")
        return self

    def make(self, host: Host) -> None:
        """Do nothing: the domain needs NICs that do not exist yet."""

    def undo(self, host: Host) -> None:
        if not self.name.startswith(PREFIX):
            return
        try:
            libvirt = self._connection(host)
        except MissingError:
            return  # an SSH host that undoes the change alone: QEMU bears the mark of the run and was ended by that
        except LibvirtError:
            return  # no daemon that could start it; a QEMU that is left bears the mark of the run
        with closing(libvirt):
            libvirt.destroy_own(own_uuid(self.name))

    def _connection(self, host: Host) -> LibvirtConnection:
        return LibvirtConnection(f"domain {self.name}", self.uri, host)
