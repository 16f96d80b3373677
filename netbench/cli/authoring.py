"""The commands for authors of topologies and profiles: `netbench init` and `netbench schema`."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from netbench.cli.output import say

authoring_app = typer.Typer(rich_markup_mode=None)


@authoring_app.command()
def init(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="netns|PORT PORT",
            help="Network namespaces, or a port that sends and one that receives; more pairs for more streams. "
            "Without either it asks.",
            autocompletion=lambda incomplete: [word for word in ("netns",) if word.startswith(incomplete)],
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Where the files go; default: here.")
    ] = Path(),
) -> None:
    """Write a commented topology and profile to start from.

    They are DIR/topology.yaml, DIR/profile.yaml and DIR/ci.sh, a gate for CI. Existing files are never overwritten.
    """
    from netbench.cli.init import write_start

    def ask(question: str) -> str:
        return str(typer.prompt(question, default="", show_default=False))

    for line in write_start(what or (), output, ask if sys.stdin.isatty() else None):
        say(line)


class SchemaOf(StrEnum):
    """The kinds of file that `netbench schema` describes."""

    TOPOLOGY = "topology"
    PROFILE = "profile"


@authoring_app.command()
def schema(
    what: Annotated[SchemaOf, typer.Argument(metavar="WHAT", help="Of which kind of file.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Default: standard output.")
    ] = None,
) -> None:
    """Write the JSON Schema of a topology or profile, for editors.

    It includes the options of all installed plug-ins. An editor with a YAML language server uses it for files that
    begin with the line `# yaml-language-server: $schema=FILE`.
    """
    from netbench.config.schema import schema_text
    from netbench.results.atomic import write_atomically

    text = schema_text(what.value)
    if output is None:
        say(text.rstrip())
    else:
        write_atomically(output, text.encode())
