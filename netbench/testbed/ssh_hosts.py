"""The SSH hosts of a testbed: connected all at once, their ports checked, and restored at the end."""

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial

from netbench.errors import MachineGoneError, MissingError, NotUndoneError, UsageError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.remote_code import module_command_on
from netbench.linux.changes import AddRunDirectory
from netbench.linux.locks import STATE_DIRECTORY
from netbench.linux.machine import Machine
from netbench.linux.requirements import Requirement, require_on_host
from netbench.linux.safety import ports
from netbench.linux.watchdog.remote_machine import RemoteMachine, begin_connection
from netbench.model.topology import Topology
from netbench.signals import shielded
from netbench.testbed.bring_up import resources
from netbench.testbed.doctor.ssh_checks import handles_frames
from netbench.testbed.emulated_ssh_hosts import played, servers_at_work
from netbench.testbed.passwords import Passwords


@contextmanager
def connected_hosts(
    topology: Topology, machine: Machine, run_id: str, needs: Mapping[str, Iterable[Requirement]]
) -> Iterator[Mapping[str, Machine]]:
    """Connect the SSH hosts of a topology for the block and yield them by name; `machine` is this one.

    MissingError, with the problem of each host, when some cannot be reached, are in use, or lack some of their
    `needs`; UsageError when a port must not be used.
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

        # Each connection is kept alive as soon as it is there, without waiting for slower ones.
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
        coming = {
            name: pool.submit(RemoteMachine, name, specs[name].address, connection)
            for name, connection in started.items()
        }
        for name, machine_there in coming.items():
            try:
                found[name] = machine_there.result()
            except MissingError as error:
                problems.append(str(error))
                continue
            if handles_frames(topology, name) and not found[name].ssh.description["numpy"]:
                where = f"host {name} ({specs[name].address})"
                problems.append(f"{where}: its python3 has no numpy; `netbench hosts prepare TOPOLOGY` installs it")
        looked = [pool.submit(require_on_host, remote.host(), needs.get(name, ())) for name, remote in found.items()]
        for look in looked:
            try:
                look.result()
            except MissingError as error:
                problems.append(str(error))
        if problems:
            raise MissingError("; ".join(problems))
        checks = [pool.submit(_refuse_unsafe_ports, topology, name, remote.host()) for name, remote in found.items()]
        for check in checks:
            check.result()
        yield found


def _close(machines: Mapping[str, RemoteMachine], _: object, error: BaseException | None, __: object) -> None:
    """Undo the changes on the machines; NotUndoneError for failures, which the watchdogs there retry.

    MachineGoneError if a machine is lost and the result unknown, but not if another error is being raised.
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
    """Undo the changes on a machine; return the failures, and the reason if the machine is lost (else empty)."""
    try:
        return [f"host {machine.name}: {failure}" for failure in machine.undo()], machine.death()
    finally:
        machine.close()


def _refuse_unsafe_ports(topology: Topology, name: str, host: Host) -> None:
    mtus = topology.port_mtus(name)
    wanted = [[port.nic, mtus.get(port.nic, 0), *port.addresses] for port in topology.ports(name)]
    # All in one process: to load the code takes a second, and to check a port next to nothing.
    command = module_command_on(host, ports.__name__, json.dumps(wanted))
    if wanted and (refusal := run_checked(host, command).strip()):
        raise UsageError(f"host {name}: {json.loads(refusal)}")
