"""What netbench changes on a machine, one class a kind of change.

Each change is plain data, so that it can be written to the journal before it is made, shown by
`--dry-run` as the command that would do the same, and undone later by another process. Undoing is
tolerant: what is not there (any more) is already undone.
"""

from netbench.linux.changes.addresses import AddAddress, AddForwardingEntry, AddNeighbour
from netbench.linux.changes.base import ByCommand, Change, Machine
from netbench.linux.changes.cgroup import AddCgroup
from netbench.linux.changes.delay import AddDelay
from netbench.linux.changes.directories import AddRunDirectory
from netbench.linux.changes.links import AddBridge, AddTap, AddVeth
from netbench.linux.changes.namespaces import AddNamespace
from netbench.linux.changes.nics_changed import Enslave, MovePort, SetUp
from netbench.linux.changes.settings import OFFLOADS, OffloadsOff, SetSysctl, read_offloads
from netbench.linux.changes.stored import from_json, to_json
from netbench.linux.changes.tables import AddTable

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
