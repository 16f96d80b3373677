"""The guest's busybox, run on this machine while an image is built, and commands that it unpacks in the guest.

The same busybox makes the same image anywhere. Commands that are large and seldom used are kept compressed: a guest
boots faster, and in less memory.
"""

from pathlib import Path

from netbench.errors import TestbedError
from netbench.images.tools import last_words, run_tool
from netbench.images.tree import File, Node, Tree, archive, merged

BUSYBOX = "usr/bin/busybox"
_SHELF = "usr/lib/netbench"
# Every file appears whole, and the command last: several of these may run at once.
_UNPACK = """\
#!/bin/sh -e
# {name} and its libraries are unpacked when it is first wanted. It takes the place of this script.
new=/{shelf}/{name}.$$
mkdir $new
trap 'rm -r $new' EXIT
(cd $new && gunzip -c ../{name}.cpio.gz | cpio -id --quiet)
for file in {files}; do
    mv $new/$file /$file
done
rm -r $new
trap - EXIT
exec /{command} "$@"
"""


class Busybox:
    """The busybox of the guest's packages, put into the directory `scratch`."""

    def __init__(self, packages: Tree, scratch: Path) -> None:
        busybox = packages[BUSYBOX]
        assert isinstance(busybox, File)
        self._program = scratch / "busybox"
        self._program.write_bytes(busybox.content)
        self._program.chmod(0o755)

    def applets(self) -> list[str]:
        """The guest paths of all commands that it can be."""
        paths = self._run("--list-full").decode().split()
        return [merged(path) for path in paths if path != "linuxrc"]

    def gzip(self, content: bytes) -> bytes:
        """The content compressed; the same bytes for the same content."""
        return self._run("gzip", "-9", stdin=content)

    def _run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        done = run_tool([self._program, *arguments], stdin=stdin)
        if done.returncode:
            raise TestbedError(f"the guest's busybox does not run here. It says:\n{last_words(done)}")
        return done.stdout


def packed(command: str, tree: Tree, busybox: Busybox) -> dict[str, Node]:
    """What stands for `tree` in a guest until its `command`, a path in it, is run for the first time.

    The directories of its files must be there in the guest.
    """
    name = command.rpartition("/")[2]
    files = " ".join(sorted(tree, key=lambda path: (path == command, path)))
    script = _UNPACK.format(name=name, shelf=_SHELF, files=files, command=command)
    return {
        f"{_SHELF}/{name}.cpio.gz": File(busybox.gzip(archive(tree))),
        command: File(script.encode(), executable=True),
    }
