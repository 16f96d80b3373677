"""The search path of commands: PATH. Imports next to nothing, because every command of netbench begins with it."""

import os


def absolute_path() -> str:
    """Return PATH without entries relative to the current directory, where any user may have put a program."""
    directories = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(filter(os.path.isabs, directories))


def search_path() -> str:
    """Return the same plus the directories of root's tools, which a shell opened with plain `su` lacks."""
    return os.pathsep.join((absolute_path(), "/usr/sbin", "/sbin"))
