"""Programs of a guest: the libraries they need, commands that are unpacked at their first use, and Python.

Libraries are searched among packages as the dynamic linker would search them. The guest's own busybox and Python run
on this machine during the build, so that the same packages make the same image anywhere. Large, rarely used commands
are compressed: a guest boots faster, and in less memory. Python's minimal standard library is included as bytecode,
which starts much faster than source on an emulated CPU.
"""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from netbench.errors import TestbedError
from netbench.images.elf import Elf
from netbench.images.tools import last_words, run_tool
from netbench.images.tree import Directory, File, Node, Symlink, Tree, archive, follow, merged

BUSYBOX = "usr/bin/busybox"
SHELF = "usr/lib/netbench"
PYTHON_PACKAGES = "usr/lib/python3/dist-packages"
# Every file appears complete, and the command last: several of these scripts may run at once.
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


def libraries(packages: Tree, programs: Tree) -> set[str]:
    """Return the paths in `packages` of all libraries that `programs` are linked against, directly or indirectly.

    Links are included with their targets. TestbedError for a library that no package contains.
    """
    shelves = {}
    for path in sorted(packages, reverse=True):
        if _is_searched(PurePosixPath(path)):
            shelves[PurePosixPath(path).name] = path
    own = {PurePosixPath(path).name for path in programs}
    found: set[str] = set()
    waiting = list(programs.items())
    while waiting:
        program, node = waiting.pop()
        if not isinstance(node, File):
            continue
        for wanted in _needs(node.content):
            if PurePosixPath(wanted).name in own:
                continue
            chain = follow(packages, merged(wanted) if wanted.startswith("/") else shelves.get(wanted, ""))
            if not chain:
                raise TestbedError(f"{program} needs {wanted}, which none of the guest's packages holds")
            waiting.extend((path, packages[path]) for path in chain if path not in found)
            found.update(chain)
    return found


def _needs(content: bytes) -> Iterable[str]:
    try:
        elf = Elf(content)
    except ValueError:
        return ()
    return (*elf.needed, *([elf.interpreter] if elf.interpreter else ()))


def _is_searched(path: PurePosixPath) -> bool:
    """Return whether the dynamic linker searches there by default: usr/lib, usr/lib64, usr/lib/TRIPLET."""
    parent = path.parent.parts
    return (
        ".so" in path.name
        and parent[:1] == ("usr",)
        and (
            parent[1:] in (("lib",), ("lib64",))
            or (len(parent) == 3 and parent[1] == "lib" and parent[2].count("-") == 2)
        )
    )


class Busybox:
    """The busybox of the guest's packages, written to the directory `scratch`."""

    def __init__(self, packages: Tree, scratch: Path) -> None:
        busybox = packages[BUSYBOX]
        assert isinstance(busybox, File)
        self._program = scratch / "busybox"
        self._program.write_bytes(busybox.content)
        self._program.chmod(0o755)

    def applets(self) -> list[str]:
        """Return the guest paths of all applets."""
        paths = self._run("--list-full").decode().split()
        return [merged(path) for path in paths if path != "linuxrc"]

    def gzip(self, content: bytes) -> bytes:
        """Return the compressed content; the same bytes for the same content."""
        return self._run("gzip", "-9", stdin=content)

    def _run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        done = run_tool([self._program, *arguments], stdin=stdin)
        if done.returncode:
            raise TestbedError(f"the guest's busybox does not run here. It says:\n{last_words(done)}")
        return done.stdout


def packed(command: str, tree: Tree, busybox: Busybox) -> dict[str, Node]:
    """Return the nodes that replace `tree` in a guest until the first run of `command`, a path in it.

    The guest must have the directories of its files.
    """
    name = command.rpartition("/")[2]
    files = " ".join(sorted(tree, key=lambda path: (path == command, path)))
    script = _UNPACK.format(name=name, shelf=SHELF, files=files, command=command)
    return {
        f"{SHELF}/{name}.cpio.gz": File(busybox.gzip(archive(tree))),
        command: File(script.encode(), executable=True),
    }


def is_python_module(path: str) -> bool:
    """Return whether a file is the source of a packaged Python module, outside Python's own library."""
    return path.startswith(f"{PYTHON_PACKAGES}/") and path.endswith(".py")


def python_modules(packages: Tree, further: Tree, scratch: Path) -> dict[str, Node]:
    """Return the library of the Python in `packages`, and `further` modules, compiled by that Python in `scratch`.

    Bytecode of another Python would not work. Hashes instead of dates make it independent of the build time.
    Modules in C are omitted unless chosen explicitly: they need libraries many times their size, and the built-in ones
    suffice for most uses. Tests of packages are omitted as well.
    """
    program = follow(packages, "usr/bin/python3")[-1]
    directory = f"usr/lib/{PurePosixPath(program).name}"
    # Links are skipped: they lead to /etc, where a guest has no such files and this machine has its own.
    sources = {
        path: node
        for path, node in packages.items()
        if isinstance(node, File) and path.startswith(f"{directory}/") and path.endswith(".py")
    }
    sources |= {path: node for path, node in further.items() if isinstance(node, File) and "/tests/" not in path}
    programs = {program: packages[program]}
    shared = {path: packages[path] for path in libraries(packages, programs)}
    write_files(scratch, {**sources, **programs, **shared})
    where = [directory, *([PYTHON_PACKAGES] if further else [])]
    _compile(scratch, program, where, sorted({str(PurePosixPath(path).parent) for path in shared}), packages)
    bytecode: dict[str, Node] = {f"{path}c": File((scratch / f"{path}c").read_bytes()) for path in sources}
    # Without this directory, Python prints a warning at every start.
    return {f"{directory}/lib-dynload": Directory(), **bytecode}


def _compile(scratch: Path, program: str, directories: Iterable[str], shelves: Iterable[str], packages: Tree) -> None:
    python = packages[program]
    assert isinstance(python, File)
    interpreter = Elf(python.content).interpreter
    linker = scratch / follow(packages, f"usr{interpreter}")[-1]
    own = {"PYTHONPATH": "", "PYTHONSAFEPATH": "1"}  # nothing from the current directory
    environment = {"PYTHONHOME": str(scratch / "usr"), "PYTHONHASHSEED": "0", **own}
    shared = ":".join(str(scratch / shelf) for shelf in shelves)
    run = (linker, "--library-path", shared, scratch / program, "-S", "-m", "compileall", "-q", "-b")
    as_in_guest = ("-s", scratch, "-p", "/")  # the paths recorded in bytecode
    compiled = [scratch / directory for directory in directories]
    done = run_tool([*run, "--invalidation-mode", "unchecked-hash", *as_in_guest, *compiled], environment=environment)
    if done.returncode:
        raise TestbedError(f"the guest's Python did not compile its library here. It says:\n{last_words(done)}")


def write_files(directory: Path, tree: Tree) -> None:
    """Write files and links below a directory, and create their parents."""
    for path, node in tree.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        match node:
            case File(content, executable):
                target.write_bytes(content)
                target.chmod(0o755 if executable else 0o644)
            case Symlink(leads_to):
                target.symlink_to(leads_to)
            case _:
                raise AssertionError(f"{path}: only files and links are written")
