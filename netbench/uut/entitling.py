"""Apply a guest's CPU entitlement: its control group, if it has a weight or limit, and the file that leads into it."""

from netbench.hosts.base import Host
from netbench.linux.cgroups import cgroup_procs, find_controller
from netbench.linux.changes import AddCgroup
from netbench.model.entitlement import Entitlement
from netbench.model.fields import percent_text
from netbench.model.interfaces import PREFIX
from netbench.uut.base import Assignment


def group_changes(own: Assignment) -> list[AddCgroup]:
    """Return the control group of one guest of a run; none without a weight and a limit."""
    weight, limit = own.entitlement.weight, own.entitlement.limit
    return [] if weight is None and limit is None else [AddCgroup(None, _group(own), weight, limit)]


def way_in(host: Host, own: Assignment) -> str:
    """Return the cgroup.procs file of that group on a host; empty without a group."""
    return cgroup_procs(host, find_controller(host), _group(own)) if group_changes(own) else ""


def planned_way_in(own: Assignment) -> str:
    """Return `way_in` on most machines, for `--dry-run`."""
    return "".join(f"{change.path}/cgroup.procs" for change in group_changes(own))


def entitlement_facts(entitlement: Entitlement) -> dict[str, str]:
    """Return the facts about an entitlement; none for the default."""
    facts = {}
    if entitlement.cpus:
        facts["host_cpus"] = ",".join(map(str, entitlement.cpus))
    if entitlement.weight is not None:
        facts["cpu_weight"] = str(entitlement.weight)
    if entitlement.limit is not None:
        facts["cpu_limit"] = percent_text(entitlement.limit)
    return facts


def _group(own: Assignment) -> str:
    return f"{PREFIX}{own.run_id[-12:]}-{own.name}"
