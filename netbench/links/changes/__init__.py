"""What netbench changes on a machine, one class a kind of change.

Each change is plain data, so that it can be written to the journal before it is made, shown by
`--dry-run` as the command that would do the same, and undone later by another process. Undoing is
tolerant: what is not there (any more) is already undone.
"""

from netbench.links.changes.addresses import AddAddress, AddForwardingEntry, AddNeighbour
from netbench.links.changes.base import ByCommand, Change, Machine
from netbench.links.changes.delays import AddDelay
from netbench.links.changes.directories import AddRunDirectory
from netbench.links.changes.groups import AddCgroup
from netbench.links.changes.links import AddBridge, AddTap, AddVeth
from netbench.links.changes.namespaces import AddNamespace
from netbench.links.changes.ports import Enslave, MovePort, SetUp
from netbench.links.changes.settings import OFFLOADS, OffloadsOff, SetSysctl, read_offloads
from netbench.links.changes.stored import from_json, to_json
from netbench.links.changes.tables import AddTable

__all__ = [
    "OFFLOADS",
    "AddAddress",
    "AddBridge",
    "AddCgroup",
    "AddDelay",
    "AddForwardingEntry",
    "AddNamespace",
    "AddNeighbour",
    "AddRunDirectory",
    "AddTable",
    "AddTap",
    "AddVeth",
    "ByCommand",
    "Change",
    "Enslave",
    "Machine",
    "MovePort",
    "OffloadsOff",
    "SetSysctl",
    "SetUp",
    "from_json",
    "read_offloads",
    "to_json",
]
