"""Where the programs are that netbench runs. Loads next to nothing, as every command begins with it."""

import os


def absolute_path() -> str:
    """PATH without what depends on the current directory, where anybody may have put a program."""
    directories = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(filter(os.path.isabs, directories))
