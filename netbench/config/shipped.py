"""The topologies and profiles that come with netbench, found from a checkout and after `pip install`."""

import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from netbench.errors import UsageError
from netbench.model.suggestions import choices

TOPOLOGIES = "topologies"
PROFILES = "pktgen-profiles"
SCHEMAS = "schemas"


def shipped(folder: str) -> dict[str, Path]:
    """Return the shipped files of `topologies` or `pktgen-profiles` by their bare names, sorted."""
    directory = _directory(folder)
    files = {path.stem: path for path in directory.glob("*.yaml")} if directory else {}
    return dict(sorted(files.items()))


def find(folder: str, name: str) -> Path:
    """Return the file that a user names: an existing path, or the bare name of a shipped file; UsageError otherwise."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or "/" in name or _is_file(path):
        return path
    files = shipped(folder)
    if name in files:
        return files[name]
    what, other, others = (
        ("topology", "profile", PROFILES) if folder == TOPOLOGIES else ("profile", "topology", TOPOLOGIES)
    )
    if name in shipped(others):
        raise wrong_kind(name, other, what)
    raise UsageError(f"{name}: no such {what}: neither a file nor one of the shipped ones; {choices(name, files)}")


def wrong_kind(file: object, kind: str, needed: str) -> UsageError:
    """Return the error of a topology in the place of a profile, or the reverse."""
    return UsageError(
        f"{file}: is a {kind}, but a {needed} is needed here; the topology comes first: netbench run TOPOLOGY PROFILE"
    )


def schema_file(what: str) -> Path:
    """Return the path of the shipped JSON Schema of a `topology` or `profile`."""
    return (_directory(SCHEMAS) or Path("..") / SCHEMAS) / f"{what}.json"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # an impossible file name
        return False


def _directory(folder: str) -> Path | None:
    checkout = Path(__file__).resolve().parents[2] / folder
    if checkout.is_dir():
        return checkout
    try:
        files = distribution("netbench").files or []
    except PackageNotFoundError:
        files = []
    for file in files:
        if file.suffix in (".yaml", ".json") and file.parent.name == folder:
            return Path(str(file.locate())).resolve().parent
    installed = Path(sys.prefix) / "share" / "netbench" / folder
    return installed if installed.is_dir() else None
