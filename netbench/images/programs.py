"""Programs of a guest: the libraries they need, commands that it unpacks when first wanted, and its Python.

Libraries are found among packages as the dynamic linker would find them. The guest's own busybox and Python run on this
machine while an image is built, so that the same packages make the same image anywhere. Commands that are large and
seldom used are kept compressed: a guest boots faster, and in less memory. Python's smallest standard library is there
as bytecode, which starts much faster than source on an emulated CPU.
"""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from netbench.errors import TestbedError
from netbench.images.elf import Elf
from netbench.images.tools import last_words, run_tool
from netbench.images.tree import Directory, File, Link, Node, Tree, archive, follow, merged

BUSYBOX = "usr/bin/busybox"
SHELF = "usr/lib/netbench"
PYTHON_PACKAGES = "usr/lib/python3/dist-packages"
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


def libraries(packages: Tree, programs: Tree) -> set[str]:
    """The paths in `packages` of all libraries that `programs` are linked against, directly or not.

    A link comes with what it leads to. TestbedError for a library that no package holds.
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
            waiting.extend((one, packages[one]) for one in chain if one not in found)
            found.update(chain)
    return found


def _needs(content: bytes) -> Iterable[str]:
    try:
        elf = Elf(content)
    except ValueError:
        return ()
    return (*elf.needed, *([elf.interpreter] if elf.interpreter else ()))


def _is_searched(path: PurePosixPath) -> bool:
    """Whether the dynamic linker looks there of itself: usr/lib, usr/lib64, usr/lib/TRIPLET."""
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
    script = _UNPACK.format(name=name, shelf=SHELF, files=files, command=command)
    return {
        f"{SHELF}/{name}.cpio.gz": File(busybox.gzip(archive(tree))),
        command: File(script.encode(), executable=True),
    }


def is_python_module(path: str) -> bool:
    """Whether a file is the source of a Python module of some package, and not of Python's own library."""
    return path.startswith(f"{PYTHON_PACKAGES}/") and path.endswith(".py")


def python_modules(packages: Tree, further: Tree, scratch: Path) -> dict[str, Node]:
    """The library of the Python in `packages`, and `further` modules, compiled by that very Python in `scratch`.

    Another Python's bytecode would not do, and hashes rather than dates make it the same on every day.
    Modules in C stay out, but for those that somebody chose: they bring libraries many times their size, and the
    built-in ones are enough for most. Tests of packages stay out as well.
    """
    program = follow(packages, "usr/bin/python3")[-1]
    directory = f"usr/lib/{PurePosixPath(program).name}"
    # A link leads to /etc, where a guest has nothing and this machine has what is its own.
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
    # Python complains on every start where this is missing.
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
    as_in_guest = ("-s", scratch, "-p", "/")  # the paths that bytecode names
    compiled = [scratch / directory for directory in directories]
    done = run_tool([*run, "--invalidation-mode", "unchecked-hash", *as_in_guest, *compiled], environment=environment)
    if done.returncode:
        raise TestbedError(f"the guest's Python did not compile its library here. It says:\n{last_words(done)}")


def write_files(directory: Path, tree: Tree) -> None:
    """Write files and links below a directory; their parents are made."""
    for path, node in tree.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        match node:
            case File(content, executable):
                target.write_bytes(content)
                target.chmod(0o755 if executable else 0o644)
            case Link(leads_to):
                target.symlink_to(leads_to)
            case _:
                raise AssertionError(f"{path}: only files and links are written")
