"""The command `netbench export`: the numbers of a campaign, or its figures and tables."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from netbench.cli.arguments import DirectoryArgument
from netbench.cli.output import say
from netbench.errors import UsageError

if TYPE_CHECKING:
    from netbench.model.campaign import CampaignResults

Form = TypeVar("Form", bound=StrEnum)


class ExportFormat(StrEnum):
    """The formats of `netbench export`."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


def export(
    directory: DirectoryArgument,
    form: Annotated[
        ExportFormat | None, typer.Option("--format", help="What to write.  [default: csv]", show_default=False)
    ] = None,
    aggregate: Annotated[
        bool, typer.Option("--aggregate", help="Means and 95 % intervals over valid repetitions.")
    ] = False,
    warm_up_trials: Annotated[
        bool, typer.Option("--warm-up-trials", help="Those that were made to warm up, instead of the others.")
    ] = False,
    figures: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Instead, the report's figures as files: of svg,pdf,png,csv those named."),
    ] = None,
    tables: Annotated[
        str | None, typer.Option(metavar="LIST", help="Instead, tables for papers: of latex,markdown those named.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Default: standard output. Of figures and tables the directory."
        ),
    ] = None,
) -> None:
    """Write the numbers of a campaign, or its figures and tables."""
    from netbench.results.directory import ResultDirectory
    from netbench.results.row_files import export as write

    results = ResultDirectory(directory).results(counters=False)
    if figures is not None or tables is not None:
        others = {"--format": form, "--aggregate": aggregate, "--warm-up-trials": warm_up_trials}
        if given := ", ".join(option for option, value in others.items() if value):
            raise UsageError(
                f"figures and tables are what the report has: leave out {given}, or --figures and --tables"
            )
        say(publish(results, figures, tables, output))
        return
    target = None if output == Path("-") else output
    write(results, (form or ExportFormat.CSV).value, aggregate, target, warm_ups=warm_up_trials)


def publish(results: "CampaignResults", figures: str | None, tables: str | None, out: Path | None) -> str:
    """Write figures and tables in the listed formats, and return the names of the files.

    UsageError for an unknown format, and without a writable directory.
    """
    from netbench.report.publication import FigureFormat, write_publication
    from netbench.report.text_tables import TableFormat

    if out is None:
        raise UsageError("figures and tables are several files; name a directory for them with -o DIR")
    asked = _listed("--figures", figures, FigureFormat), _listed("--tables", tables, TableFormat)
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; name a directory for figures and tables with -o DIR")
    written = write_publication(results, *asked, out)
    return "\n".join(map(str, written)) if written else "nothing to draw: no trial has been measured"


def _listed(option: str, text: str | None, forms: type[Form]) -> list[Form]:
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    known = [form.value for form in forms]
    if text is not None and not words:
        raise UsageError(f"{option}: name at least one of {', '.join(known)}")
    for word in words:
        if word not in known:
            raise UsageError(f"{option}: there is no {word!r}; choose from {', '.join(known)}")
    return [form for form in forms if form.value in words]
