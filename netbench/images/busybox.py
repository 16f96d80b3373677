"""The guest's busybox, run on this machine while an image is built: the same one makes the same image anywhere."""

from pathlib import Path

from netbench.errors import TestbedError
from netbench.images.tools import last_words, run_tool
from netbench.images.tree import File, Tree, merged

PATH = "usr/bin/busybox"


class Busybox:
    """The busybox of the guest's packages, put into the directory `scratch`."""

    def __init__(self, packages: Tree, scratch: Path) -> None:
        busybox = packages[PATH]
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
