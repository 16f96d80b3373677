"""Commands that are large and seldom used, kept compressed in a guest: it boots faster, and in less memory."""

from netbench.images.busybox import Busybox
from netbench.images.cpio import archive
from netbench.images.tree import File, Node, Tree

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
