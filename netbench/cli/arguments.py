"""Arguments and options that several commands share."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from netbench.cli import completion
from netbench.errors import UsageError

TopologyArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPOLOGY",
        help="A topology file, or the name of a shipped topology.",
        autocompletion=completion.topologies,
    ),
]
ProfileArgument = Annotated[
    str,
    typer.Argument(
        metavar="PROFILE",
        help="A profile file, or the name of a shipped profile.",
        autocompletion=completion.profiles,
    ),
]
DirectoryArgument = Annotated[Path, typer.Argument(metavar="DIR", help="A result directory of `netbench run`.")]
OutputOption = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="DIR", help="The result directory; it must not exist.")
]
UutOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Only this UUT: its name, or a pattern with * such as 'vm-*'; may be repeated.",
        autocompletion=completion.uuts,
    ),
]
ScenarioOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Only this scenario: its name, or a pattern with * such as 'network-*'; may be repeated.",
        autocompletion=completion.scenarios,
    ),
]
SizeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--size",
        "--sizes",
        metavar="LIST",
        help="Only these frame sizes or mixes, with any packet (128) or one ('128 vlan'), or workloads of tools "
        "(http), or patterns with *; a list with commas; may be repeated.",
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a profile key, or a topology's: topology.KEY=VALUE."),
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until no other netbench measures on this machine.")]
StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Exit with code 1 if trials stayed invalid (of a search: if it found no result). Otherwise a complete "
        "campaign exits with 0.",
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print what would be done; change nothing.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def words_of(texts: Iterable[str]) -> list[str]:
    """Return the words of lists as on the command line, which commas separate."""
    return [word.strip() for text in texts for word in text.split(",") if word.strip()]


def time_budget_s(text: str | None) -> float | None:
    """Return the seconds of a time budget such as `5m`, `90s` or `1h`; UsageError for other texts; None for None."""
    from netbench.model.units import parse_seconds

    if text is None:
        return None
    # Users write m for minutes. Profiles do not accept it, because it could mean milliseconds there.
    written = f"{text.strip()}in" if text.strip().endswith("m") else text
    try:
        seconds = parse_seconds(written)
    except ValueError as error:
        raise UsageError(f"--time-budget {text}: {error}") from None
    if seconds <= 0:
        raise UsageError(f"--time-budget {text}: more than 0 s")
    return seconds
