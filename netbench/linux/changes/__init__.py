"""What netbench changes on a machine, one class a kind of change.

Each change is plain data, so that it can be written to the journal before it is made, shown by `--dry-run` as the
command that does it, and undone later by another process. All are made and undone by commands on a host, and so in the
same way on this machine, in a VM and in a guest. Undoing is tolerant: what is not there (any more) is already undone.
"""

from netbench.linux.changes.addresses import (
    AddAddress,
    AddDelay,
    AddForwardingEntry,
    AddIngress,
    AddNeighbour,
    Redirect,
)
from netbench.linux.changes.base import Change, Look, Request
from netbench.linux.changes.kernel import AddCgroup, AddRunDirectory, AddTable, SetSysctl, of_nic
from netbench.linux.changes.links import (
    AddBridge,
    AddMacvtap,
    AddNamespace,
    AddTap,
    AddVeth,
    Enslave,
    OffloadsOff,
    SetPromiscuous,
    SetUp,
)
from netbench.linux.changes.napi import BindThread, ReceiveByNapi
from netbench.linux.changes.ports import KeepPort, MovePort
from netbench.linux.changes.steering import GroOn, SteerReceived

__all__ = [
    "AddAddress",
    "AddBridge",
    "AddCgroup",
    "AddDelay",
    "AddForwardingEntry",
    "AddIngress",
    "AddMacvtap",
    "AddNamespace",
    "AddNeighbour",
    "AddRunDirectory",
    "AddTable",
    "AddTap",
    "AddVeth",
    "BindThread",
    "Change",
    "Enslave",
    "GroOn",
    "KeepPort",
    "Look",
    "MovePort",
    "OffloadsOff",
    "ReceiveByNapi",
    "Redirect",
    "Request",
    "SetPromiscuous",
    "SetSysctl",
    "SetUp",
    "SteerReceived",
    "of_nic",
]
