"""Guest images as directories, for guests without their own kernel: unpacked once, and kept in the cache."""

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
    """Return the directory of all unpacked images."""
    return (cache or cache_directory()) / "roots"


def root_directory(image: Image, cache: Path | None = None) -> Path:
    """Return the directory of an unpacked image, existing or not."""
    return roots(cache) / image.digest[:16]


def unpack(image: Image, cache: Path | None = None) -> Path:
    """Return the directory with the files of an image; it is created if necessary, completely or not at all.

    MissingError without cpio or permission, TestbedError where it cannot be unpacked. Must run as root, the owner of
    the files.
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
    for left in target.parent.glob(f"{_UNFINISHED}*"):  # by a killed process
        shutil.rmtree(left, ignore_errors=True)  # leftovers do no harm
    scratch = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=target.parent))
    try:
        _extract(image.initrd.read_bytes(), scratch)
        for packed in sorted((scratch / SHELF).glob("*.gz")):  # a writable guest unpacks these itself
            _extract(gzip.decompress(packed.read_bytes()), scratch)
        for name in ("hostname", "resolv.conf"):
            (scratch / "etc" / name).touch()  # mount points of runtimes
        scratch.chmod(0o755)
        scratch.rename(target)
    except BaseException:  # Ctrl-C too
        shutil.rmtree(scratch, ignore_errors=True)  # leftovers are removed next time
        raise


def _extract(archive: bytes, directory: Path) -> None:
    """Unpack a cpio archive made by netbench over the existing files."""
    done = run_tool(
        ["cpio", "--extract", "--make-directories", "--unconditional", "--quiet"], stdin=archive, cwd=directory
    )
    if done.returncode != 0:
        raise TestbedError(f"a guest image cannot be unpacked to {directory}:\n{last_words(done)}")
