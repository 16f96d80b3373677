"""The changes that netbench makes on a machine, one class for each kind.

Each change is plain data. It is written to the journal before it is made, and `--dry-run` shows it as a command.
Another process can undo it later. All are made and undone by commands on a host, so they work the same way on this
machine, in a VM and in a guest. Undo is tolerant: objects that do not exist (any more) count as undone.
"""

from netbench.linux.changes.base import Change, KernelRequest, MachineState
from netbench.linux.changes.fdb import AddForwardingEntries
from netbench.linux.changes.kernel import AddCgroup, AddRunDirectory, AddTable, ForgetConnections, SetSysctl, of_nic
from netbench.linux.changes.links import (
    AddAddress,
    AddBridge,
    AddDelay,
    AddForwardingEntry,
    AddIngress,
    AddMacvlan,
    AddMacvtap,
    AddNamespace,
    AddNeighbour,
    AddTap,
    AddVeth,
    Enslave,
    Redirect,
    SetPromiscuous,
    SetUp,
)
from netbench.linux.changes.ports import KeepPort, MovePort
from netbench.linux.changes.receive import (
    BindThread,
    ChecksumOffloadOff,
    GroOn,
    OffloadsOff,
    ReceiveByNapi,
    SteerReceived,
)
from netbench.linux.changes.routes import MAIN_TABLE, AddRoute, AddRule
from netbench.linux.changes.tunnels import AddTunnel, AddVlan, AddVlanInterface

__all__ = [
    "MAIN_TABLE",
    "AddAddress",
    "AddBridge",
    "AddCgroup",
    "AddDelay",
    "AddForwardingEntries",
    "AddForwardingEntry",
    "AddIngress",
    "AddMacvlan",
    "AddMacvtap",
    "AddNamespace",
    "AddNeighbour",
    "AddRoute",
    "AddRule",
    "AddRunDirectory",
    "AddTable",
    "AddTap",
    "AddTunnel",
    "AddVeth",
    "AddVlan",
    "AddVlanInterface",
    "BindThread",
    "Change",
    "ChecksumOffloadOff",
    "Enslave",
    "ForgetConnections",
    "GroOn",
    "KeepPort",
    "KernelRequest",
    "MachineState",
    "MovePort",
    "OffloadsOff",
    "ReceiveByNapi",
    "Redirect",
    "SetPromiscuous",
    "SetSysctl",
    "SetUp",
    "SteerReceived",
    "of_nic",
]
