"""Changes as the journal holds them."""

from dataclasses import asdict
from typing import Any

from netbench.linux.changes.addresses import AddAddress, AddForwardingEntry, AddNeighbour
from netbench.linux.changes.base import Change
from netbench.linux.changes.cgroup import AddCgroup
from netbench.linux.changes.delay import AddDelay
from netbench.linux.changes.directories import AddRunDirectory
from netbench.linux.changes.links import AddBridge, AddTap, AddVeth
from netbench.linux.changes.namespaces import AddNamespace
from netbench.linux.changes.nics_changed import Enslave, MovePort, SetUp
from netbench.linux.changes.settings import OffloadsOff, SetSysctl
from netbench.linux.changes.tables import AddTable

_KINDS: tuple[type[Change], ...] = (
    AddNamespace,
    AddVeth,
    AddBridge,
    AddTap,
    AddRunDirectory,
    MovePort,
    SetUp,
    Enslave,
    AddAddress,
    AddNeighbour,
    AddForwardingEntry,
    SetSysctl,
    OffloadsOff,
    AddTable,
    AddDelay,
    AddCgroup,
)


def to_json(change: Change) -> dict[str, object]:
    """A change as JSON-able data."""
    return {"change": type(change).__name__, **asdict(change)}


def from_json(data: dict[str, Any]) -> Change:
    """The change that `to_json` made this of; KeyError or TypeError for anything else."""
    fields = dict(data)
    kind = {kind.__name__: kind for kind in _KINDS}[str(fields.pop("change"))]
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()})
