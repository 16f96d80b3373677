"""Passwords for hosts over SSH: read when a connection is made, and told to ssh by a program for root's eyes alone."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from netbench.errors import MissingError
from netbench.linux.state import STATE_DIRECTORY, state_is_written
from netbench.model.host_spec import Password, SshSpec


class Passwords:
    """Those of hosts, each said by a program in a directory that is root's alone."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def askpass(self, name: str, spec: SshSpec) -> Path | None:
        """The program of a host (SSH_ASKPASS of ssh(1)); None for one without a password.

        MissingError where the password is not there, or cannot be kept.
        """
        if spec.password is None:
            return None
        told, program = self._directory / name, self._directory / f"{name}-askpass"
        secret = _secret(name, spec.password)
        with state_is_written(self._directory):
            told.write_text(f"{secret}\n", errors="surrogateescape")  # as it is in the environment
            program.write_text(f"#!/bin/sh\nexec cat '{told}'\n")
            program.chmod(0o700)
        return program


@contextmanager
def passwords_for_now() -> Iterator[Passwords]:
    """A directory for them, until the block is left; MissingError where it cannot be made."""
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
