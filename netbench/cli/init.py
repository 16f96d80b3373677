"""`netbench init`: templates of a topology and a profile, which `netbench run` accepts unchanged."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from netbench.cli.output import visible
from netbench.config.shipped import schema_file
from netbench.errors import TestbedError, UsageError
from netbench.linux.safety.ports import CandidatePort, read_ports, refuse_unsafe_port
from netbench.model.fields import PORT_NAME
from netbench.model.foreign_text import well_formed
from netbench.model.units import format_bit_rate

NETNS = "netns"
_TOPOLOGY, _PROFILE, _CI = "topology.yaml", "profile.yaml", "ci.sh"
_EXECUTABLE = 0o755
_USUAL_MBPS = 1000


def write_start(words: Sequence[str], directory: Path, ask: Callable[[str], str] | None) -> Iterator[str]:
    """Write the files for `netns`, or for pairs of ports, into `directory`; yield the lines to print.

    `ask` prompts the user if `words` are empty; None: there is no user. UsageError if a file exists already, or a port
    is missing or in use.
    """
    targets = {name: directory / name for name in (_TOPOLOGY, _PROFILE, _CI)}
    for path in targets.values():
        if path.exists() or path.is_symlink():
            raise UsageError(f"{path}: exists and is not overwritten; name another directory with -o")
    if not words:
        words = _asked(ask)
    texts = _in_namespaces() if list(words) == [NETNS] else _of_ports(words)
    topology, profile, recipe = targets.values()
    for path, text in zip((topology, profile), texts, strict=True):
        modeline = f"# yaml-language-server: $schema={schema_file(path.stem)}\n"
        _write(path, modeline + text)
        yield f"written: {path}"
    _write(recipe, (files("netbench.cli") / "start" / _CI).read_text())
    recipe.chmod(_EXECUTABLE)
    yield f"written: {recipe}"
    yield f"what is missing, if anything:  netbench doctor {topology}"
    yield f"what would be done:            netbench run {topology} {profile} --dry-run"
    yield f"first results in 3 minutes:    netbench run {topology} {profile} --time-budget 3m"
    yield f"all repetitions:               netbench run {topology} {profile}"
    yield f"compare two versions in CI:    {recipe} BASE NEW"


def _asked(ask: Callable[[str], str] | None) -> list[str]:
    """Return the two ports, or `netns`, that the user enters; UsageError without a user."""
    if ask is None:
        raise UsageError("name the ports that send and receive, in pairs, or netns: netbench init eth1 eth2")
    ports = read_ports()
    free = [port for port in ports if not port.in_use]
    lines = [f"  {port.name:16} {_about(port)}" for port in ports]
    question = "\n".join(
        [
            "Ports of this machine:",
            *lines,
            "Which port sends? (Enter: none; measure inside network namespaces, without ports)",
        ]
    )
    first = ask(visible(question)).strip()
    if not first or first == NETNS:
        return [NETNS]
    others = ", ".join(port.name for port in free if port.name != first)
    return [first, ask(visible(f"Which port receives what the UUT forwards? ({others or 'none is free'})")).strip()]


def _about(port: CandidatePort) -> str:
    speed = "" if port.speed_mbps is None else f"{format_bit_rate(port.speed_mbps * 1e6)}, "
    return speed + ("free" if not port.in_use else f"in use: {'; '.join(port.in_use)}")


def _in_namespaces() -> tuple[str, str]:
    return _template("netns-topology.yaml").substitute(), _template("profile.yaml").substitute(
        loads="[30% of maximum, 90% of maximum, 150% of maximum]",
        reason="below what the UUT forwards, near it and above",
    )


def _of_ports(names: Sequence[str]) -> tuple[str, str]:
    """Return the topology and the profile of streams over pairs of ports; each port must be free."""
    if NETNS in names:
        raise UsageError(f"init {' '.join(names)}: {NETNS} stands alone: network namespaces need no ports")
    if len(names) % 2 or len(set(names)) < len(names):
        raise UsageError(f"init {' '.join(names)}: ports come in pairs, one that sends and one that receives, or netns")
    for name in names:
        if well_formed(name) != name:
            raise UsageError(f"init: {name}: this name is not UTF-8, which YAML cannot hold: rename the interface")
        refuse_unsafe_port(name)
        if not re.fullmatch(PORT_NAME, name):
            raise UsageError(
                f"init: {name}: no topology has ports with blanks, control characters, quotes, # or backslashes in "
                "their names: rename it"
            )
    rates = {port.name: port.speed_mbps or _USUAL_MBPS for port in read_ports() if port.name in names}
    pairs = list(enumerate(zip(names[::2], names[1::2], strict=True), start=1))

    def lines(indent: int, made: Callable[[int, str, str], list[str]]) -> str:
        return "\n".join(" " * indent + line for number, (tx, rx) in pairs for line in made(number, tx, rx))

    topology = _template("ports-topology.yaml").substitute(
        ports=lines(6, lambda n, tx, rx: [f"tx{n}: {_quoted(tx)} # sends", f"rx{n}: {_quoted(rx)} # receives"]),
        links=lines(
            2,
            lambda n, tx, rx: [
                f"- {{ends: [tester/tx{n}], rate: {format_bit_rate(rates[tx] * 1e6)}}}",
                f"- {{ends: [tester/rx{n}], rate: {format_bit_rate(rates[rx] * 1e6)}}}",
            ],
        ),
        streams=lines(2, lambda n, tx, rx: [f"- {{name: s{n}, source: tester/tx{n}, sink: tester/rx{n}}}"]),
        first=visible(names[0]),
        second=visible(names[1]),
    )
    profile = _template("profile.yaml").substitute(
        loads="[1%, 10%, max]", reason="parts of the link's rate that a source reaches on most machines"
    )
    return topology, profile


def _quoted(name: str) -> str:
    """Return a name as YAML text: without quotes, `1e3`, `no`, `0x10` and `a:b` are not text."""
    return name if re.fullmatch(r"[a-z]+[a-z0-9]*[0-9]", name) else json.dumps(name, ensure_ascii=False)


def _template(name: str) -> Template:
    return Template((files("netbench.cli") / "start" / name).read_text())


def _write(path: Path, text: str) -> None:
    """Write a new file, and never replace an existing one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path}: exists and is not overwritten; name another directory with -o") from None
    except (PermissionError, NotADirectoryError) as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    except OSError as error:
        raise TestbedError(f"{path} was not written: {error.strerror}") from None
