"""Where commands are looked for: PATH. Loads next to nothing, as every command of netbench begins with it."""

import os


def absolute_path() -> str:
    """PATH without what depends on the current directory, where anybody may have put a program."""
    directories = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(filter(os.path.isabs, directories))


def search_path() -> str:
    """The same with the directories where root's tools live, which a shell opened with plain `su` lacks."""
    return os.pathsep.join((absolute_path(), "/usr/sbin", "/sbin"))
