"""What a guest may take of its machine's CPUs, put in force: a control group where there are shares, and the way in."""

from netbench.hosts.base import Host
from netbench.linux.cgroups import door, find_controller
from netbench.linux.changes import AddCgroup
from netbench.model.entitlement import Entitlement
from netbench.model.fields import percent_text
from netbench.model.names import PREFIX


def group_changes(entitlement: Entitlement, run_id: str, name: str) -> list[AddCgroup]:
    """The control group of one guest of a run; none without a weight and a limit."""
    if entitlement.weight is None and entitlement.limit is None:
        return []
    return [AddCgroup(None, _group(run_id, name), entitlement.weight, entitlement.limit)]


def way_in(host: Host, entitlement: Entitlement, run_id: str, name: str) -> str:
    """The file by which processes of a host enter that group; empty without one."""
    if not group_changes(entitlement, run_id, name):
        return ""
    return door(host, find_controller(host), _group(run_id, name))


def planned_way_in(entitlement: Entitlement, run_id: str, name: str) -> str:
    """As `way_in`, on most machines, for `--dry-run`."""
    return "".join(f"{change.path}/cgroup.procs" for change in group_changes(entitlement, run_id, name))


def entitlement_facts(entitlement: Entitlement) -> dict[str, str]:
    """What a reader must know of it; nothing where it is as usual."""
    facts = {}
    if entitlement.cpus:
        facts["host_cpus"] = ",".join(map(str, entitlement.cpus))
    if entitlement.weight is not None:
        facts["cpu_weight"] = str(entitlement.weight)
    if entitlement.limit is not None:
        facts["cpu_limit"] = percent_text(entitlement.limit)
    return facts


def _group(run_id: str, name: str) -> str:
    return f"{PREFIX}{run_id[-12:]}-{name}"
