"""Guest images as directories, for guests without a kernel of their own: unpacked once, and kept in the cache."""

import fcntl
import gzip
import shutil
import tempfile
from pathlib import Path

from netbench.errors import MissingError, TestbedError
from netbench.images.library import Image, cache_directory
from netbench.images.programs import SHELF
from netbench.images.tools import last_words, run_tool

_UNFINISHED = ".unpacking-"


def roots(cache: Path | None = None) -> Path:
    """What holds all images that are directories."""
    return (cache or cache_directory()) / "roots"


def root_directory(image: Image, cache: Path | None = None) -> Path:
    """Where the files of an image are, or would be, as a directory."""
    return roots(cache) / image.digest[:16]


def unpack(image: Image, cache: Path | None = None) -> Path:
    """The directory that holds the files of an image, which is made where it is not there; never half of it.

    MissingError without cpio or permission, TestbedError where it cannot be unpacked. By root: files are root's.
    """
    target = root_directory(image, cache)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with (target.parent / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
            if not target.is_dir():
                _make(image, target)
    except PermissionError as error:
        raise MissingError(f"{error.filename}: no permission; be root, or set NETBENCH_CACHE") from None
    except OSError as error:
        raise TestbedError(f"{error.filename or target}: {error.strerror}; make room there") from None
    return target


def _make(image: Image, target: Path) -> None:
    for left in target.parent.glob(f"{_UNFINISHED}*"):  # by one that was killed
        shutil.rmtree(left, ignore_errors=True)  # what cannot be removed is in the way of nothing
    scratch = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=target.parent))
    try:
        _extract(image.initrd.read_bytes(), scratch)
        for packed in sorted((scratch / SHELF).glob("*.gz")):  # what a guest with room to write unpacks itself
            _extract(gzip.decompress(packed.read_bytes()), scratch)
        for name in ("hostname", "resolv.conf"):
            (scratch / "etc" / name).touch()  # on which runtimes mount theirs
        scratch.chmod(0o755)
        scratch.rename(target)
    except BaseException:  # Ctrl-C too
        shutil.rmtree(scratch, ignore_errors=True)  # what is left is removed next time
        raise


def _extract(archive: bytes, directory: Path) -> None:
    """Unpack a cpio archive of netbench's own over what is there."""
    done = run_tool(
        ["cpio", "--extract", "--make-directories", "--unconditional", "--quiet"], stdin=archive, cwd=directory
    )
    if done.returncode != 0:
        raise TestbedError(f"a guest image cannot be unpacked to {directory}:\n{last_words(done)}")
