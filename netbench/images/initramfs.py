"""The file system of a guest: files selected from unpacked packages, netbench's own files, and the archive of both.

The guest's own busybox, Python and dynamic linker run on this machine during the build, so that the same packages make
the same image anywhere. Python's library is included as bytecode, which starts much faster than source on an emulated
CPU.
"""

import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath

from netbench.errors import TestbedError
from netbench.images.apt import MERGED
from netbench.images.library import SHELF, Completed, last_words, require_output, run_tool
from netbench.images.recipe import AGENT, GUEST, Recipe

_BUSYBOX = "usr/bin/busybox"
_PYTHON_PACKAGES = "usr/lib/python3/dist-packages/"
_NO_BUSYBOX = "the guest's busybox does not run here"
# Directories that exist only in the guest. The last one is the last entry of the archive, by which init detects a
# truncated one.
_MOUNT_POINTS = ("dev", "proc", "root", "run", "sys", "tmp", "var/log")
# No program in a guest reads these, and they are the largest part of many packages.
_UNREAD = ("usr/share/doc/", "usr/share/man/", "usr/share/locale/", "usr/share/lintian/", "usr/share/bug/")


def lay_out(root: Path, tree: Path, recipe: Recipe, whole: Iterable[Path]) -> None:
    """Move the files of a guest from the unpacked packages `root` to the new directory `tree`, and add netbench's own.

    Of the packages, `whole` (files of packages) are included completely; of the others, only the commands, libraries
    and files in the recipe.
    """
    for path, target in recipe.links.items():
        (root / path).unlink(missing_ok=True)
        (root / path).symlink_to(target)
    chosen = {path for deb in whole for path in _content(root, deb)}
    for name in recipe.commands:
        chosen.update(_command(root, name))
    matches = {str(path.relative_to(root)) for pattern in recipe.files for path in root.glob(pattern)}
    chosen.update(part for path in matches for part in _follow(root, path))
    sources = {path for path in chosen if path.startswith(_PYTHON_PACKAGES) and path.endswith(".py")}
    chosen -= sources
    chosen |= _libraries(root, chosen)
    chosen |= _compiled(root, {path for path in sources if "/tests/" not in path})
    for name in recipe.packed_commands:
        _pack(root, tree, name, chosen)
    applets = require_output([root / _BUSYBOX, "--list-full"], _NO_BUSYBOX).decode().split()
    _move(root, tree, chosen | set(recipe.links))
    for name in MERGED:
        (tree / name).symlink_to(f"usr/{name}")
    names = {PurePosixPath(path).name for path in chosen}
    for path in map(_merged, applets):
        if PurePosixPath(path).name not in {*names, "linuxrc"}:
            (tree / path).symlink_to(f"/{_BUSYBOX}")
    _add_own(tree, recipe)


def archive(tree: Path) -> bytes:
    """Return a directory as an uncompressed cpio archive; the same bytes for the same files, for any user."""
    paths = sorted(str(path.relative_to(tree)) for path in tree.rglob("*"))
    for path in (tree / name for name in paths):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o111 else 0o644)
        os.utime(path, (0, 0), follow_symlinks=False)
    options = ["--create", "--format=newc", "--null", "--quiet", "--owner=+0:+0"]
    # Not --reproducible, whose meaning differs between releases of cpio.
    options += ["--ignore-devno", "--renumber-inodes"]
    names = b"".join(os.fsencode(path) + b"\0" for path in paths)
    return require_output(["cpio", *options], "the initramfs was not written", stdin=names, cwd=tree)


def _move(root: Path, tree: Path, paths: Iterable[str]) -> None:
    for path in paths:
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        if (root / path).lstat().st_nlink > 1:  # cpio would write it at the end
            shutil.copy(root / path, tree / path)
        else:
            (root / path).rename(tree / path)


def _pack(root: Path, tree: Path, name: str, chosen: Collection[str]) -> None:
    """Add an archive of a command and the libraries that only packed commands need; it is unpacked at its first run."""
    command = _command(root, name)
    packed = root / f"packed-{name}"
    for path in {*command, *_libraries(root, command)}.difference(chosen):
        (packed / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / path, packed / path, follow_symlinks=False)  # other packed commands may need it too
    (tree / SHELF).mkdir(parents=True, exist_ok=True)
    compressed = require_output([root / _BUSYBOX, "gzip", "-9"], _NO_BUSYBOX, stdin=archive(packed))
    (tree / SHELF / f"{name}.cpio.gz").write_bytes(compressed)
    (tree / command[0]).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(GUEST / "packed-command", tree / command[0])
    (tree / command[0]).chmod(0o755)


def _add_own(tree: Path, recipe: Recipe) -> None:
    for name in _MOUNT_POINTS:
        (tree / name).mkdir(parents=True, exist_ok=True)
    (tree / SHELF).mkdir(parents=True, exist_ok=True)
    for python in tree.glob("usr/lib/python3.*"):
        (python / "lib-dynload").mkdir(exist_ok=True)  # without it, Python prints a warning at every start
    shutil.copytree(GUEST / "etc", tree / "etc", dirs_exist_ok=True)
    shutil.copy(AGENT, tree / SHELF / "agent.py")
    scripts = {GUEST / "init": tree / "init"}
    if recipe.start:
        scripts[GUEST / recipe.start] = tree / SHELF / "start"
    for source, target in scripts.items():
        shutil.copy(source, target)
        target.chmod(0o755)


def _content(root: Path, deb: Path) -> Iterator[str]:
    """Yield the paths of a package's files in the root, without documentation."""
    tar = require_output(["dpkg-deb", "--fsys-tarfile", deb], f"{deb} cannot be read")
    for line in require_output(["tar", "--list"], f"{deb} cannot be listed", stdin=tar).decode().splitlines():
        path = _merged(line)
        if not line.endswith("/") and not path.startswith(_UNREAD):
            yield path


def _command(root: Path, name: str) -> list[str]:
    chain = _follow(root, f"usr/bin/{name}") or _follow(root, f"usr/sbin/{name}")
    if not chain:
        raise TestbedError(f"none of the guest's packages has the command {name}")
    return chain


def _merged(path: str) -> str:
    """Return the path of a package's file (`./bin/ip`, `/lib64/ld.so`) in a guest with merged /usr: `usr/bin/ip`."""
    plain = path.removeprefix("./").strip("/")
    return f"usr/{plain}" if plain.partition("/")[0] in MERGED else plain


def _follow(root: Path, path: str) -> list[str]:
    """Return `path` and, where it is a link, its targets link by link, as far as they are in the root."""
    chain: list[str] = []
    while os.path.lexists(root / path) and path not in chain and not (root / path).is_dir():
        chain.append(path)
        if not (root / path).is_symlink():
            break
        path = _merged(os.path.normpath(Path("/", path).parent / (root / path).readlink()))
    return chain


def _libraries(root: Path, paths: Collection[str]) -> set[str]:
    """Return the paths of all libraries that programs are linked against, directly or indirectly.

    Links are included with their targets. TestbedError for a library that no package contains.
    """
    beside = sorted({str(PurePosixPath(path).parent) for path in paths if ".so" in PurePosixPath(path).name})
    found: set[str] = set()
    for path in sorted(paths):
        file = root / path
        if file.is_symlink() or not file.is_file() or not _is_elf(file):
            continue
        if _linked(root, "--verify", file, beside=beside).returncode not in (0, 2):  # as ldd(1) does: a static program
            continue
        for line in _linked(root, "--list", file, beside=beside).stdout.decode().splitlines():
            name, _, target = line.strip().partition(" => ")
            library = target.rpartition(" (")[0]
            if target and not library.startswith(f"{root}/"):
                raise TestbedError(f"{path} needs {name}, which none of the guest's packages has")
            found.update(_follow(root, library.removeprefix(f"{root}/")) if library else ())
    return found


def _is_elf(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(4) == b"\x7fELF"


def _linked(root: Path, *argv: str | Path, beside: Iterable[str] = (), stdin: bytes = b"") -> Completed:
    """Run the dynamic linker of the packages with arguments; it uses libraries of the packages only."""
    (linker,) = root.glob("usr/lib/*-linux-gnu/ld-linux-*.so.?")
    searched = [linker.parent, root / "usr/lib", *(root / directory for directory in beside)]
    # Nothing from the current directory, nor of this machine's Python.
    environment = {"PYTHONHOME": f"{root}/usr", "PYTHONHASHSEED": "0", "PYTHONPATH": "", "PYTHONSAFEPATH": "1"}
    options = ["--inhibit-cache", "--library-path", ":".join(map(str, searched))]
    return run_tool([linker, *options, *argv], stdin=stdin, environment=environment)


def _compiled(root: Path, further: Iterable[str]) -> set[str]:
    """Compile the library of the Python in the root and further modules; return the paths of the bytecode.

    Hashes instead of dates make it independent of the build time. Modules in C are omitted unless chosen explicitly:
    they need libraries many times their size, and the built-in ones suffice for most uses.
    """
    program = _follow(root, "usr/bin/python3")[-1]
    directory = root / "usr/lib" / PurePosixPath(program).name
    # Links are skipped: they lead to /etc, where a guest has no such files and this machine has its own.
    library = (path for path in directory.rglob("*.py") if path.is_file() and not path.is_symlink())
    sources = sorted({*(str(path.relative_to(root)) for path in library), *further})
    # -s and -p: the paths recorded in bytecode are those in the guest.
    options = ["-q", "-b", "--invalidation-mode", "unchecked-hash", "-s", str(root), "-p", "/", "-i", "-"]
    names = "".join(f"{root / path}\n" for path in sources)
    done = _linked(root, root / program, "-S", "-m", "compileall", *options, stdin=names.encode())
    if done.returncode:
        raise TestbedError(f"the guest's Python did not compile its library here. It reports:\n{last_words(done)}")
    return {f"{path}c" for path in sources}
