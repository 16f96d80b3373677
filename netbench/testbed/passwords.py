"""Passwords for SSH hosts: read when connecting, and passed to ssh by a program that only root can read."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from netbench.errors import MissingError
from netbench.linux.locks import STATE_DIRECTORY, state_is_written
from netbench.model.host_spec import Password, SshSpec


class Passwords:
    """The passwords of hosts, each printed by a program in a directory that only root can read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def askpass(self, name: str, spec: SshSpec) -> Path | None:
        """Return the askpass program of a host (SSH_ASKPASS of ssh(1)); None for a host without a password.

        MissingError if the password is missing, or cannot be stored.
        """
        if spec.password is None:
            return None
        stored, program = self._directory / name, self._directory / f"{name}-askpass"
        secret = _secret(name, spec.password)
        with state_is_written(self._directory):
            stored.write_text(f"{secret}\n", errors="surrogateescape")  # as it is in the environment
            program.write_text(f"#!/bin/sh\nexec cat '{stored}'\n")
            program.chmod(0o700)
        return program


@contextmanager
def passwords_for_now() -> Iterator[Passwords]:
    """Yield passwords in a directory that is removed on exit; MissingError where it cannot be created."""
    with state_is_written(STATE_DIRECTORY / "passwords"):
        STATE_DIRECTORY.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix="passwords-", dir=STATE_DIRECTORY))
    try:
        yield Passwords(directory)
    finally:
        shutil.rmtree(directory)


def _secret(name: str, password: Password) -> str:
    if password.env is not None:
        if password.env not in os.environ:
            raise MissingError(f"host {name}: password: there is no variable {password.env} in the environment")
        return os.environ[password.env]
    try:
        return Path(password.file or "").expanduser().read_text(errors="surrogateescape").rstrip("\n")
    except OSError as error:
        raise MissingError(f"host {name}: password: {password.file}: {error.strerror}") from error
