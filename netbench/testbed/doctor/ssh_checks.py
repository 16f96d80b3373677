"""The checks of a topology's SSH hosts, all at once, and the installation of the packages they lack."""

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from netbench.config.plugins import SINKS, plugins
from netbench.errors import MissingError, NetbenchError
from netbench.hosts.base import Host, Process
from netbench.hosts.clock import wait_until
from netbench.hosts.local import LocalHost
from netbench.hosts.pipes import end
from netbench.hosts.remote_code import PYTHON
from netbench.hosts.ssh import explained, ssh_command
from netbench.linux.requirements import Command, Facility, Requirement
from netbench.model.host_spec import SshSpec
from netbench.model.topology import Topology
from netbench.testbed.doctor.host_checks import HostCheck, Status, install_command, unattended_install
from netbench.testbed.guest_specs import guest_specs, make_uut
from netbench.testbed.needs import needs_of_ends
from netbench.testbed.passwords import Passwords, passwords_for_now
from netbench.testbed.requirements import facilities, tools
from netbench.testbed.resolved import Resolved
from netbench.uut.base import Assignment

_LOOK_S = 30.0
_OUTPUT_S = 1.0  # until the pipes of ssh close after its end
_INSTALL_S = 600.0
_NUMPY = Command("python3-numpy", "python3-numpy", "sending frames, and counting captures where they are made")
_EVERYWHERE = (
    Command("ip", "iproute2", "namespaces, links and addresses there"),
    Command("ethtool", "ethtool", "switching the offloads of NICs off"),
    Command("taskset", "util-linux", "pinning processes to CPUs"),
    Command("setpriv", "util-linux", "processes that end with netbench's own there"),
)
_OF_THE_SYSTEM = ("/usr/bin/python3", "/bin/python3")  # interpreters that use the distribution's Python packages
_PYTHON = Command("python3", "python3", "netbench's own code, which is brought there")
_TCPDUMP = Command("tcpdump", "tcpdump", "capturing at the sinks")
# Prints each result as a line NAME=VALUE; its arguments are the commands and files to check.
_SCRIPT = """
printf 'system=%s\\n' "$(. /etc/os-release 2>/dev/null; echo $ID $ID_LIKE)"
printf 'kernel=%s\\n' "$(uname -s -r -m)"
printf 'python=%s\\n' "$(python3 -I -c 'import sys; print(*sys.version_info[:3])' 2>/dev/null)"
printf 'interpreter=%s\\n' "$(command -v python3)"
printf 'numpy=%s\\n' "$(python3 -I -c 'import numpy; print(numpy.__version__)' 2>/dev/null)"
printf 'clock=%s\\n' "$(chronyc -n tracking 2>/dev/null | sed -n 's/^System time *: //p')"
PATH=$PATH:/usr/sbin:/sbin
for name; do
    case $name in
    # BusyBox has one that does not end a process with its parent.
    (setpriv) found=$(setpriv --help 2>&1 | grep -q -e --pdeathsig && command -v setpriv) ;;
    (/*) found=$(ls -d $name 2>/dev/null | head -n 1) ;;
    (*) found=$(command -v "$name") ;;
    esac
    printf 'sign:%s=%s\\n' "$name" "$found"
done
"""


@dataclass(frozen=True, slots=True)
class HostChecks:
    """The check results of one host.

    `install` is the command that installs its missing packages, empty if there are none or the installer is unknown;
    `by_hand` are the other missing items.
    """

    name: str
    checks: tuple[HostCheck, ...]
    install: str = ""
    by_hand: tuple[HostCheck, ...] = ()

    @property
    def missing(self) -> list[HostCheck]:
        """The needs that the host lacks."""
        return [check for check in self.checks if check.status is Status.MISSING]

    @property
    def is_reached(self) -> bool:
        """Whether the host can be reached."""
        return self.checks[0].status is Status.OK


def handles_frames(topology: Topology, host: str) -> bool:
    """Return whether netbench's own code sends or receives frames on a host."""
    ends = [end for stream in topology.streams for end in (stream.source, stream.sink)]
    return host in {topology.machine(end.partition("/")[0]) for end in ends}


def _sinks(topology: Topology) -> set[str | None]:
    return {topology.machine(stream.sink.partition("/")[0]) for stream in topology.streams}


def needed_there(topology: Topology, host: str) -> list[Command]:
    """Return the tools that an SSH host needs for its part in a topology."""
    wanted = [_PYTHON, *_EVERYWHERE]
    if handles_frames(topology, host):
        wanted.append(_NUMPY)
    if host in _sinks(topology):
        wanted.append(_TCPDUMP)
    wanted += tools(_needs_of_uuts(topology, host))
    return list({tool.name: replace(tool, optional=False) for tool in wanted}.values())


def needed_in_run(resolved: Resolved, host: str) -> list[Requirement]:
    """Return the needs of an SSH host in a run, except Python, for the measured UUTs only."""
    topology = resolved.topology
    wanted: list[Requirement] = list(_EVERYWHERE)
    if host in _sinks(topology):
        wanted += tools(plugins(SINKS)[resolved.profile.sink.kind].needs)
    hosts = [name for name in topology.hosts if topology.machine(name) == host]
    wanted += tools(needs_of_ends(topology, hosts, resolved.tools))
    if host == topology.uut_machine:
        wanted += [*tools(resolved.needs_there), *facilities(resolved.needs_there)]
    return list(dict.fromkeys(wanted))


def facilities_there(topology: Topology, host: str) -> list[Facility]:
    """Return the facilities that a host needs for its UUTs, if they can be checked without netbench on the host."""
    return [facility for facility in facilities(_needs_of_uuts(topology, host)) if facility.signs]


def _needs_of_uuts(topology: Topology, host: str) -> set[str]:
    """Return the needs of all UUTs and neighbours, if they are on this host."""
    specs = [spec for uut in topology.uuts for spec in guest_specs(topology, uut).values()]
    placed = specs if host == topology.uut_machine else []
    return {need for spec in placed for need in make_uut(spec).plan(Assignment()).needs}


def checks_of_hosts(topology: Topology, here: Host, passwords: Passwords) -> list[HostChecks]:
    """Check all SSH hosts except emulated ones at the same time, each over its own connection.

    All connections share one time limit. The output of a host fits into a pipe.
    """
    specs = {name: spec for name, spec in topology.ssh_hosts.items() if not spec.is_emulated}
    looks: dict[str, tuple[list[Command], list[Facility], Process]] = {}
    without_password: dict[str, str] = {}
    for name, spec in specs.items():
        wanted, beyond = needed_there(topology, name), facilities_there(topology, name)
        signs = [*(tool.name for tool in wanted), *(sign for facility in beyond for sign in facility.signs)]
        try:
            askpass = passwords.askpass(name, spec)
        except MissingError as error:
            without_password[name] = str(error)
        else:
            command = ssh_command(spec, ["sh", "-c", _SCRIPT, "netbench", *signs], askpass)
            looks[name] = wanted, beyond, here.spawn(command)
    wait_until(lambda: all(process.poll() is not None for *_, process in looks.values()), _LOOK_S)
    return [
        _checks_of(name, spec, *looks[name]) if name in looks else _not_reached(name, spec, without_password[name])
        for name, spec in specs.items()
    ]


def prepare_host(spec: SshSpec, found: HostChecks, here: Host, passwords: Passwords) -> str:
    """Install the missing packages of a host; return the reason of a failure, or empty on success."""
    command = ssh_command(spec, ["sh", "-c", found.install], passwords.askpass(found.name, spec))
    try:
        done = here.run(command, timeout_s=_INSTALL_S)
    except NetbenchError as error:
        return str(error)
    return "" if done.exit_code == 0 else explained(done.stderr) or f"exit code {done.exit_code}"


def _not_reached(name: str, spec: SshSpec, why: str) -> HostChecks:
    return HostChecks(name, (HostCheck(f"{name} ({spec.address})", Status.MISSING, why, "", "a host of the topology"),))


def _checks_of(
    name: str, spec: SshSpec, wanted: Sequence[Command], beyond: Sequence[Facility], process: Process
) -> HostChecks:
    """Return the checks of a host by the output of the remote script."""
    stdout, why = _output(process)
    if why:
        return _not_reached(name, spec, why)
    answers = dict(line.partition("=")[::2] for line in stdout.splitlines())
    system = answers.get("system", "").split()
    synchronised = answers.get("clock") or "its clock is not kept by chrony"
    kernel = f"{answers.get('kernel', '')}; {synchronised}"
    checks = [HostCheck(f"{name} ({spec.address})", Status.OK, kernel, "", "a host of the topology")]
    packages: list[str] = []
    pip = ""
    for tool in wanted:
        is_missing = not _is_there(tool, answers)
        by_pip = _pip_command(answers) if tool.name == _NUMPY.name else ""
        if is_missing and by_pip:
            pip = by_pip
        elif is_missing:
            packages.append(tool.package)
        found = _found(tool, answers) or "not installed"
        remedy = by_pip or install_command(tool.package, system)
        checks.append(_check(name, tool.name, found, remedy, tool.needed_for, is_missing=is_missing))
    others: list[HostCheck] = []
    for facility in beyond:
        lacking = [sign for sign in facility.signs if not answers.get(f"sign:{sign}")]
        found = ", ".join(f"no {sign.split()[0]}" for sign in lacking) or "there"
        remedy = install_command(" ".join(facility.packages), system) if facility.packages else facility.what_to_do
        check = _check(name, facility.name, found, remedy, facility.needed_for, is_missing=bool(lacking))
        (checks if facility.packages else others).append(check)
        packages += facility.packages if lacking else ()
    apt = unattended_install(list(dict.fromkeys(packages)), system)
    install = " && ".join(filter(None, (apt, pip))) if apt or not packages else ""
    by_hand = [check for check in (*([] if install else checks), *others) if check.status is Status.MISSING]
    return HostChecks(name, (*checks, *others), install, tuple(by_hand))


def _check(host: str, need: str, found: str, remedy: str, needed_for: str, *, is_missing: bool) -> HostCheck:
    status, remedy = (Status.MISSING, f"on {host}: {remedy}") if is_missing else (Status.OK, "")
    return HostCheck(f"{host}: {need}", status, found, remedy, needed_for)


def _output(process: Process) -> tuple[str, str]:
    """Return the output of the remote script, and the reason if it is incomplete (else empty)."""
    try:
        process.wait(0)
        stdout, stderr = process.communicate(timeout=_OUTPUT_S)
    except subprocess.TimeoutExpired:
        end(process)
        return "", f"no answer within {_LOOK_S:g} s"
    return stdout, (explained(stderr) or f"ssh ended with exit code {process.returncode}") if process.returncode else ""


def _found(tool: Command, answers: Mapping[str, str]) -> str:
    if tool.name == _PYTHON.name:
        return answers.get("python", "").replace(" ", ".")
    return answers.get("numpy", "") if tool.name == _NUMPY.name else answers.get(f"sign:{tool.name}", "")


def _pip_command(answers: Mapping[str, str]) -> str:
    """Return the command that adds numpy to a Python that is not the system's, such as pyenv's; empty otherwise."""
    interpreter = answers.get("interpreter", "")
    if not _is_there(_PYTHON, answers) or not interpreter or interpreter in _OF_THE_SYSTEM:
        return ""
    return f"{shlex.quote(interpreter)} -m pip install numpy"


def _is_there(tool: Command, answers: Mapping[str, str]) -> bool:
    if tool.name == _PYTHON.name:
        return tuple(map(int, answers.get("python", "").split())) >= PYTHON
    return bool(_found(tool, answers))


def check_hosts(topology: Topology) -> list[HostCheck]:
    """Return the checks of all SSH hosts of a topology, in order."""
    with passwords_for_now() as passwords:
        found = checks_of_hosts(topology, LocalHost("local", "doctor"), passwords)
    return [check for host in found for check in host.checks]
