"""The vSphere API: a session with an ESXi host or a vCenter; errors of the API become one-sentence messages.

Servers without a trusted certificate are rejected before a login, and every wait has a limit.
"""

import hashlib
import importlib
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.parsers.expat import ExpatError

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import refusal
from netbench.hosts.clock import wait_until
from netbench.vmm.esxi.options import EsxiOptions

REMEDY = "pip install 'netbench[esxi]'"
_PORT = 443
_ANSWER_S = 30.0  # for one request; tasks are polled
_POLL_S = 0.2
_VERSION = "vim.version.version11"  # vSphere 6.5: it and all later versions support every request made here
Untyped = Any  # pyvmomi creates its classes at run time: they have no types for mypy


def vsphere_module() -> ModuleType:
    """VMware's Python bindings of the API; MissingError where there are none."""
    try:
        return importlib.import_module("pyVmomi")
    except ImportError as error:
        raise MissingError(f"pyvmomi is not installed ({error}): {REMEDY}") from error


def password(options: EsxiOptions) -> str:
    """Return the password, from the place that the topology names.

    MissingError when it is missing, or when other users may read it.
    """
    if options.password_file is None:
        if (secret := os.environ.get(options.password_env)) is None:
            raise MissingError(
                f"the password of {options.user} at {options.server} is missing: put it into the environment variable "
                f"{options.password_env}, or into a file that password_file names"
            )
        return secret
    path = Path(options.password_file)
    try:
        if path.stat().st_mode & 0o077:
            raise MissingError(f"password_file: other users may read or write {path}: run `chmod 600 {path}`")
        return path.read_text().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise MissingError(f"password_file: {path} cannot be read: {getattr(error, 'strerror', error)}") from error


@dataclass(frozen=True, slots=True)
class Session:
    """A session, logged in. `content` is the root of the API; `vim` and `vmodl` are its types."""

    server: str
    content: Untyped
    vim: Untyped
    vmodl: Untyped

    def wait(self, task: Untyped, limit_s: float) -> None:
        """Return once a task is done; raises the error of the task, and TestbedError when it takes longer.

        A task is cancelled if the wait for it ends early: otherwise it would make its changes after the undo.
        """
        unfinished = self.vim.TaskInfo.State.queued, self.vim.TaskInfo.State.running
        try:
            if not wait_until(lambda: self._info(task)["state"] not in unfinished, limit_s, _POLL_S):
                what = self._info(task)["descriptionId"]
                raise TestbedError(f"{self.server}: {what} did not end within {limit_s:g} s")
        except BaseException:  # Ctrl-C too
            with suppress(Exception):  # some tasks cannot be cancelled
                task.CancelTask()
            raise
        if error := self._info(task).get("error"):
            raise error

    def objects(self, kind: Untyped, folder: Untyped = None) -> list[Untyped]:
        """Return all objects of a type, in one folder or everywhere."""
        view = self.content.viewManager.CreateContainerView(folder or self.content.rootFolder, [kind], True)
        try:
            return list(view.view)
        finally:
            view.Destroy()

    def _info(self, task: Untyped) -> dict[str, Any]:
        """Return the state of a task, its description and its error.

        Other properties are left out: from the simulator, pyvmomi takes the source disk of a copy for an entity.
        """
        query = self.vmodl.query.PropertyCollector
        properties = query.PropertySpec(type=self.vim.Task, pathSet=["info.state", "info.descriptionId", "info.error"])
        spec = query.FilterSpec(objectSet=[query.ObjectSpec(obj=task)], propSet=[properties])
        (task_content,) = self.content.propertyCollector.RetrieveContents([spec])
        return {change.name.removeprefix("info."): change.val for change in task_content.propSet}


@contextmanager
def session(options: EsxiOptions) -> Iterator[Session]:
    """Yield a session with the API that ends with the block.

    TestbedError, in one sentence, for every failure of the API, also within the block. MissingError without pyvmomi,
    without the password, or without the certificates of `ca_file`. Defects of netbench keep their exceptions.
    """
    module, secret, server = vsphere_module(), password(options), options.server or ""
    host, port = _address(server)
    with _errors_of_api(options, module):
        trust = {"sslContext": _trust(options, host, port), "httpConnectionTimeout": _ANSWER_S}
        stub = module.SoapStubAdapter(host=host, port=port, path="/sdk", version=_VERSION, **trust)
        try:
            try:
                content = module.vim.ServiceInstance("ServiceInstance", stub).RetrieveContent()
            except (ExpatError, TypeError) as error:  # pyvmomi raises TypeError for a field of the wrong type
                raise TestbedError(f"{server}: this server has no vSphere API: {error}") from error
            content.sessionManager.Login(options.user, secret)
            try:
                yield Session(server, content, module.vim, module.vmodl)
            finally:
                with suppress(Exception):  # the work is done; the server ends idle sessions by itself
                    content.sessionManager.Logout()
        finally:
            stub.DropConnections()


@contextmanager
def _errors_of_api(options: EsxiOptions, module: ModuleType) -> Iterator[None]:
    """Convert exceptions of the API and of its connection to TestbedErrors."""
    try:
        yield
    except (OSError, HTTPException, ExpatError, module.vmodl.MethodFault) as error:
        raise refusal(str(options.server), _problem(error, options, module.vim)) from error


def _problem(error: Untyped, options: EsxiOptions, vim: Untyped) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return (
                f"its certificate is not trusted ({error.verify_message or error.reason}): name the authority "
                "that signed it in ca_file, or its SHA-256 in thumbprint"
            )
        case OSError() | HTTPException():
            words = getattr(error, "strerror", None) or str(error) or type(error).__name__
            return f"the vSphere API cannot be reached: {words}"
        case ExpatError():
            return f"the vSphere API sent invalid XML: {error}"
        case vim.fault.InvalidLogin():
            return f"login of user {options.user} failed: wrong name or password"
        case vim.fault.NoPermission():
            lacks = f": it lacks the privilege {error.privilegeId}" if error.privilegeId else ""
            return f"user {options.user} is not permitted to do that{lacks}"
        case vim.fault.DuplicateName() | vim.fault.AlreadyExists():
            return f"{error.name} exists already and is not netbench's"
    causes = [cause.message for cause in getattr(error, "faultMessage", None) or () if cause.message]
    name = type(error).__name__.removeprefix("vim.fault.")
    return ": ".join(dict.fromkeys(text for text in (error.msg or name, *causes) if text))


def _address(server: str) -> tuple[str, int]:
    """Return host and port; an IPv6 address is in brackets."""
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]"):
        host, port = server, str(_PORT)
    return host.strip("[]"), int(port)


def _trust(options: EsxiOptions, host: str, port: int) -> ssl.SSLContext:
    """Return the trusted certificates, after a handshake: it explains certificate errors better than a request."""
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
    except OSError as error:
        raise MissingError(f"ca_file: {options.ca_file} contains no certificates: {error.strerror or error}") from error
    if options.thumbprint:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # any issuer and any host name
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        certificate = ssl.get_server_certificate((host, port), timeout=_ANSWER_S)  # no other data is exchanged
        found = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).hexdigest()
        if found != options.thumbprint:
            raise TestbedError(
                f"{options.server}: its certificate has the SHA-256 {found}, not that of thumbprint: it is another "
                "server, or has a new certificate; compare with the fingerprint on its console"
            )
        context.load_verify_locations(cadata=certificate)
    with (
        socket.create_connection((host, port), timeout=_ANSWER_S) as connection,
        context.wrap_socket(connection, server_hostname=host),
    ):
        return context
