"""The command `netbench export`: the numbers of a campaign, or its figures and tables."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from netbench.cli.arguments import DirectoryArgument, SizeOption, words_of
from netbench.cli.output import say
from netbench.errors import NetbenchError, UsageError

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
        bool, typer.Option("--warm-up-trials", help="Write the warm-up trials instead of the others.")
    ] = False,
    figures: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Write the report's figures instead, as svg,pdf,png,csv."),
    ] = None,
    width: Annotated[
        float, typer.Option(metavar="MM", min=40, max=1000, help="Width of figures; the default is that of a column.")
    ] = 85.0,
    aspect: Annotated[float, typer.Option(min=0.1, max=10, help="Height ÷ width of each panel of a figure.")] = 0.62,
    series: Annotated[str, typer.Option(metavar="LIST", help="Only these UUTs.")] = "",
    sizes: SizeOption = None,
    tables: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Write tables for papers instead, as latex,markdown."),
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
    from netbench.results.export_files import export as write
    from netbench.statistics.compared_cells import CellSelection, reject_unknown

    results = ResultDirectory(directory).results(counters=False)
    if figures is not None or tables is not None:
        of_rows = {"--format": form, "--aggregate": aggregate, "--warm-up-trials": warm_up_trials}
        if given := ", ".join(option for option, value in of_rows.items() if value):
            raise UsageError(
                f"figures and tables are those of the report: leave out {given}, or --figures and --tables"
            )
        say(publish(results, Publication(figures, tables, width, aspect, series, ",".join(sizes or ())), output))
        return
    selection = CellSelection(tuple(words_of([series])), (), tuple(words_of(sizes or ())))
    reject_unknown(selection, [results], uut_option="--series")
    target = None if output == Path("-") else output
    form = form or ExportFormat.CSV
    write(results, form.value, aggregate, target, warm_ups=warm_up_trials, selection=selection)


@dataclass(frozen=True, slots=True)
class Publication:
    """The options of figures and tables as files: lists as on the command line."""

    figures: str | None = None
    tables: str | None = None
    width_mm: float = 85.0
    aspect: float = 0.62
    series: str = ""
    sizes: str = ""


def publish(results: "CampaignResults", options: Publication, out: Path | None) -> str:
    """Write figures and tables in the listed formats, and return the names of the files.

    UsageError for an unknown format, UUT or size, and without a writable directory.
    """
    from netbench.report.figures.files import FigureFormat, FileOptions, selected, write_figures
    from netbench.report.model import ReportModel
    from netbench.report.text_tables import TableFormat, exported_tables
    from netbench.results.atomic import write_atomically

    if out is None:
        raise UsageError("figures and tables are several files; name a directory for them with -o DIR")
    formats = _listed("--figures", options.figures, FigureFormat)
    table_formats = _listed("--tables", options.tables, TableFormat)
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; name a directory for figures and tables with -o DIR")
    model = selected(ReportModel.of(results), words_of([options.series]), words_of([options.sizes]))
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{out}: cannot be made: {error.strerror}; name another directory with -o DIR") from None
    written = write_figures(model, formats, out, FileOptions(options.width_mm, options.aspect))
    for form in table_formats:
        for name, text in exported_tables(model, form):
            written.append(out / f"{name}{form.suffix}")
            write_atomically(written[-1], text.encode())
    if broken := [f"{name} ({error})" for name, error in model.broken_figures.items()]:
        raise NetbenchError(f"figures of other packages are missing in {out}: {'; '.join(broken)}")
    return "\n".join(map(str, written)) if written else "nothing to draw: no trial has been measured"


def _listed(option: str, text: str | None, forms: type[Form]) -> list[Form]:
    words, known = words_of([text or ""]), [form.value for form in forms]
    if text is not None and not words:
        raise UsageError(f"{option}: name at least one of {', '.join(known)}")
    for word in words:
        if word not in known:
            raise UsageError(f"{option}: there is no {word!r}; choose from {', '.join(known)}")
    return [form for form in forms if form.value in words]
