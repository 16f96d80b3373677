"""The machines of a testbed that are reached by SSH: all connected at once, their ports looked at, left as found."""

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial

from netbench.errors import MachineGoneError, MissingError, NotUndoneError, UsageError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.composed import module_command_on
from netbench.linux import safety
from netbench.linux.changes import AddRunDirectory
from netbench.linux.machine import Machine
from netbench.linux.needs import Need, require_there
from netbench.linux.remote_machine import RemoteMachine, begin_connection
from netbench.linux.state import STATE_DIRECTORY
from netbench.model.topology import Topology
from netbench.signals import shielded
from netbench.testbed.base_changes import resources
from netbench.testbed.passwords import Passwords
from netbench.testbed.played_servers import played, servers_at_work
from netbench.testbed.ssh_checks import handles_frames


@contextmanager
def connected_hosts(
    topology: Topology, machine: Machine, run_id: str, needs: Mapping[str, Iterable[Need]]
) -> Iterator[Mapping[str, Machine]]:
    """The SSH hosts of a topology by name, for as long as the block lasts; `machine` is this one.

    MissingError, with what is wrong at each, when there is no way into some of them, one is in use, or lacks something
    of its `needs`; UsageError when a port must not be used.
    """
    specs = topology.ssh_hosts
    with ExitStack() as stack:
        here = {name: machine.host() for name in specs}
        if played(topology):
            control, ways = stack.enter_context(servers_at_work(topology, machine, run_id))
            specs, here = specs | ways, here | dict.fromkeys(ways, control)
        directory = STATE_DIRECTORY / "passwords" / run_id[-12:]
        machine.make([AddRunDirectory(str(directory))])
        passwords = Passwords(directory)

        # Each is kept in touch with as soon as it is there: it does not wait for those that take longer.
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=len(specs) or 1))
        started, problems = {}, []
        for name, spec in specs.items():
            try:
                askpass = passwords.askpass(name, spec)
            except MissingError as error:
                problems.append(str(error))
                continue
            wanted = resources(topology, name)
            started[name] = begin_connection(name, spec, here[name], topology.name, wanted, askpass)
            stack.callback(started[name].end)
        found: dict[str, RemoteMachine] = {}
        stack.push(partial(_close, found))
        coming = {name: pool.submit(RemoteMachine, name, specs[name].address, one) for name, one in started.items()}
        for name, machine_there in coming.items():
            try:
                found[name] = machine_there.result()
            except MissingError as error:
                problems.append(str(error))
                continue
            if handles_frames(topology, name) and not found[name].ssh.told["numpy"]:
                where = f"host {name} ({specs[name].address})"
                problems.append(f"{where}: its python3 has no numpy; `netbench hosts prepare TOPOLOGY` installs it")
        looked = [pool.submit(require_there, one.host(), needs.get(name, ())) for name, one in found.items()]
        for look in looked:
            try:
                look.result()
            except MissingError as error:
                problems.append(str(error))
        if problems:
            raise MissingError("; ".join(problems))
        for name, one in found.items():
            _refuse_unsafe_ports(topology, name, one.host())
        yield found


def _close(machines: Mapping[str, RemoteMachine], _: object, error: BaseException | None, __: object) -> None:
    """Take back what was changed on them; NotUndoneError for what could not be, which their guards try once more.

    MachineGoneError where nobody can tell, as one is lost; not where an error is on its way, which tells of that.
    """
    with shielded(), ThreadPoolExecutor(max_workers=len(machines) or 1) as pool:
        left = list(pool.map(_left_as_found, machines.values()))
    failures = [failure for failed, _ in left for failure in failed]
    lost = [death for _, death in left if death]
    if failures:
        raise NotUndoneError(
            f"not everything could be undone; `netbench clean` there tries again: {'; '.join(failures)}"
        )
    if lost and error is None:
        raise MachineGoneError(
            f"{'; '.join(lost)}: what was changed there is taken back by netbench's program there, or, if that was "
            "killed, by the next run there, or `netbench clean`"
        )


def _left_as_found(machine: RemoteMachine) -> tuple[list[str], str]:
    """What could not be undone, and why it is lost, if it is."""
    try:
        return [f"host {machine.name}: {failure}" for failure in machine.undo()], machine.death()
    finally:
        machine.close()


def _refuse_unsafe_ports(topology: Topology, name: str, host: Host) -> None:
    mtus = topology.port_mtus(name)
    for port in topology.ports(name):
        command = module_command_on(host, safety.__name__, port.nic, str(mtus.get(port.nic, 0)), *port.addresses)
        if refusal := run_checked(host, command).strip():
            raise UsageError(f"host {name}: {json.loads(refusal)}")
