"""Selects the modules of a kernel that go into a guest, and writes the tables for modprobe."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from netbench.errors import UsageError
from netbench.images.compression import uncompressed
from netbench.images.elf import Elf
from netbench.images.tree import File, Node


@dataclass(frozen=True, slots=True)
class Module:
    """An uncompressed kernel module. `path` is relative to the directory of modules."""

    name: str
    path: str
    content: bytes
    architecture: str
    release: str
    depends: tuple[str, ...]
    aliases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModuleSelection:
    """The modules of a guest, each after its dependencies.

    `builtin` and `absent` are the wanted modules that the kernel has built in, or lacks.
    """

    modules: tuple[Module, ...]
    builtin: tuple[str, ...]
    absent: tuple[str, ...]


def select(directory: Path, wanted: Iterable[str], required: Iterable[str] = ()) -> ModuleSelection:
    """Return the wanted modules of `directory` (/lib/modules/RELEASE) and their dependencies.

    UsageError where there are no modules, one cannot be read, or a required one is neither present nor built in.
    """
    builtin = _builtin(directory)
    files = {_name(path): path for path in sorted(directory.glob("**/*.ko*"))}
    if not files and not builtin:
        raise UsageError(f"{directory} holds no kernel modules; name the directory /lib/modules/RELEASE of that kernel")
    available = {*files, *builtin}
    if lacking := sorted(set(required) - available):
        raise UsageError(
            f"{directory}: this kernel has no {', '.join(lacking)}, neither as a module nor built in, and without "
            "nobody can talk to the guest; choose a kernel with virtio (CONFIG_VIRTIO_PCI, CONFIG_VIRTIO_CONSOLE)"
        )
    names = sorted(set(wanted))
    modules: dict[str, Module] = {}
    for name in names:
        if name in files:
            _load(name, directory, files, builtin, modules)
    return ModuleSelection(
        tuple(modules.values()),
        builtin=tuple(name for name in names if name in builtin and name not in files),
        absent=tuple(name for name in names if name not in available),
    )


def module_files(selection: ModuleSelection, directory: str) -> dict[str, Node]:
    """Return the modules below `directory` in the guest, with modules.dep, .alias and .builtin for modprobe."""
    by_name = {module.name: module for module in selection.modules}
    tables = {
        "modules.dep": [_dependency_line(module, by_name) for module in selection.modules],
        "modules.alias": [f"alias {alias} {module.name}" for module in selection.modules for alias in module.aliases],
        "modules.builtin": [f"kernel/{name}.ko" for name in selection.builtin],
    }
    tree: dict[str, Node] = {f"{directory}/{module.path}": File(module.content) for module in selection.modules}
    for name, lines in tables.items():
        tree[f"{directory}/{name}"] = File("".join(f"{line}\n" for line in sorted(lines)).encode())
    return tree


def _load(
    name: str, directory: Path, files: Mapping[str, Path], builtin: frozenset[str], modules: dict[str, Module]
) -> None:
    """Add a module to `modules`, after its dependencies."""
    if name in modules:
        return
    module = _read(name, directory, files[name])
    for needed in module.depends:
        if needed in files:
            _load(needed, directory, files, builtin, modules)
        elif needed not in builtin:
            raise UsageError(f"{directory} is not complete: {name} depends on {needed}, which is not there")
    modules[name] = module


def _read(name: str, directory: Path, path: Path) -> Module:
    try:
        content = uncompressed(path.read_bytes())
        elf = Elf(content)
    except ValueError as error:
        raise UsageError(f"{path} is no kernel module: {error}") from None
    info = elf.modinfo
    values = dict(info)
    return Module(
        name,
        str(path.relative_to(directory).parent / f"{path.name.partition('.')[0]}.ko"),
        content,
        elf.architecture,
        release=values.get("vermagic", "").partition(" ")[0],
        depends=tuple(_underscored(word) for word in values.get("depends", "").split(",") if word),
        aliases=tuple(value for key, value in info if key == "alias"),
    )


def _builtin(directory: Path) -> frozenset[str]:
    """Return the names in modules.builtin, a list of paths written by the kernel's build."""
    try:
        lines = (directory / "modules.builtin").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(_name(Path(line)) for line in lines)


def _dependency_line(module: Module, modules: Mapping[str, Module]) -> str:
    """Return a line of modules.dep: a module's dependencies, each before its own (modprobe starts at the end)."""
    order = list(dict.fromkeys(_needed(module, modules)))
    return f"{module.path}:{''.join(f' {modules[name].path}' for name in reversed(order))}"


def _needed(module: Module, modules: Mapping[str, Module]) -> Iterator[str]:
    for name in module.depends:
        if name in modules:
            yield from _needed(modules[name], modules)
            yield name


def _name(path: Path) -> str:
    return _underscored(path.name.partition(".")[0])


def _underscored(name: str) -> str:
    """Return the kernel's spelling: a file e-x.ko is the module e_x."""
    return name.replace("-", "_")
