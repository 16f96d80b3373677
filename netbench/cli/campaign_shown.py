"""A campaign on the console: its progress, and the results so far when it ends or is stopped."""

import ctypes
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from shlex import quote

import typer

from netbench.cli.console import PrintingConsole
from netbench.cli.output import LastingOutput, complain, printable, visible
from netbench.cli.progress import ConsoleProgress
from netbench.cli.summary import findings_text, rfc2544_table, searches_table, summary_table
from netbench.errors import ExitCode, NetbenchError, NotUndoneError, TestbedError, UsageError, unreported
from netbench.model.campaign import CampaignResults
from netbench.model.events import Observer
from netbench.report.formats import count
from netbench.report.page import write_report
from netbench.report.stability import steadiness_warnings
from netbench.report.summary_json import write_summary
from netbench.results.directory import ResultDirectory
from netbench.signals import Stopped, stopping_on_signals
from netbench.statistics.drift import steadiness_of
from netbench.statistics.groups import group_trials

_M_ARENA_MAX = -8  # malloc.h


def carry_out(directory: ResultDirectory, walk: Callable[[Sequence[Observer]], object], *, strict: bool) -> None:
    """Run a campaign with progress on the console, then print the tables and write the report.

    `strict`: raise typer.Exit(1) if trials stayed invalid. Searches try loads that the tester cannot send, so for them
    only a search without a result counts.
    A campaign that is stopped, or whose testbed breaks, prints the tables of the trials so far, and how to resume it.
    """
    with suppress(AttributeError):  # a C library that is not glibc
        # The threads of all trials share one heap (mallopt(3)); otherwise each new heap keeps some memory for good.
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    # The reader of the output may be gone long before the campaign ends.
    output = LastingOutput(sys.stdout)
    console = PrintingConsole(output)
    progress = ConsoleProgress(console)
    kept = f"all results so far are kept; go on with: netbench resume {quote(str(directory.path))}"
    try:
        with stopping_on_signals():
            walk([progress])
    except Stopped as stopped:
        progress.close()
        if directory.manifest.exists():
            try:
                _show_so_far(directory, console)
            finally:  # also if a second signal stops it
                complain(f"stopped; {kept}")
        if (left := unreported(stopped)) is not None:
            raise NotUndoneError(str(left)) from stopped
        raise typer.Exit(128 + stopped.signum) from None
    except NetbenchError as error:
        progress.close()
        if error.exit_code is ExitCode.BROKEN and directory.manifest.exists():
            _show_so_far(directory, console)
            raise type(error)(f"{error}\n{kept}") from error
        raise
    try:
        results = directory.results(counters=False).in_memory
        _show(results, directory, console)
    except UsageError as error:  # the directory was readable and writable when the campaign began
        raise TestbedError(f"{directory.path}: was removed or damaged during the campaign: {error}") from error
    verdicts = [trial.verdict.value for trial in results.wanted_trials]
    if invalid := verdicts.count("invalid"):
        complain(f"{invalid} of {len(verdicts)} trials stayed invalid; the report has the reasons")
    print(visible(f"report: {directory.report}"), file=output)
    output.flush()
    if failed := sum(search.is_failed for search in results.searches):
        complain(f"{failed} of {len(results.searches)} searches found no result; the report has the reasons")
    if strict and (failed if results.searches else invalid):
        raise typer.Exit(ExitCode.INVALID_RESULTS)


def _show_so_far(directory: ResultDirectory, console: PrintingConsole) -> None:
    """Print the tables and write the report of the trials before the stop; nothing without trials."""
    try:
        results = directory.results(counters=False).in_memory
        if results.trials:
            _show(results, directory, console)
            console.print(visible(f"report of what there is: {directory.report}"), markup=False, soft_wrap=True)
    except NetbenchError as error:  # for example a full disk, which also stopped the campaign and is reported later
        console.print(printable(f"no report could be written: {error}"), markup=False, soft_wrap=True)


def _show(results: CampaignResults, directory: ResultDirectory, console: PrintingConsole) -> None:
    console.print(findings_text(results))
    if results.maxima_searches:
        console.print(searches_table(results, results.maxima_searches))
    if results.searches:
        console.print(searches_table(results, results.searches))
    elif any(True for _ in results.wanted_trials):
        console.print(summary_table(results))
    else:
        console.print(f"no table of results yet: only {count(len(results.trials), 'calibration trial')} so far")
    if (tests := rfc2544_table(results)) is not None:
        console.print(tests)
    write_report(results, directory.report)
    write_summary(results, directory.summary)
    warnings = list(results.warnings)
    if not results.searches:
        warnings += steadiness_warnings(steadiness_of(group_trials(results)))
    if warnings:
        kinds = ", ".join(dict.fromkeys(warning.kind.value for warning in warnings))
        text = f"read the numbers with these warnings, which the report explains: {kinds}"
        console.print(text, markup=False, soft_wrap=not console.is_terminal)
