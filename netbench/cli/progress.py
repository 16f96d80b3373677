"""A campaign on the console: a live bar or plain lines of progress, and the results when it ends or is stopped."""

import ctypes
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from shlex import quote
from threading import Event as Flag
from threading import Thread

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from netbench.cli.console import PrintingConsole
from netbench.cli.flow_summary import flows_table
from netbench.cli.output import LastingOutput, complain, printable, visible
from netbench.cli.summary import findings_text, rfc2544_table, searches_table, summary_table
from netbench.errors import ExitCode, NetbenchError, NotUndoneError, TestbedError, UsageError, unreported
from netbench.model.campaign import CampaignResults, NoiseFloor
from netbench.model.events import (
    BoundsNarrowed,
    CampaignDisturbed,
    CampaignFinished,
    CampaignStarted,
    CampaignStopped,
    CampaignWaits,
    CapturesFull,
    Event,
    MachineGone,
    NeighboursFailed,
    NoiseFloorMeasured,
    Observer,
    SweepEnded,
    TrialStarted,
    TrialStored,
    UutFailed,
    UutReady,
    WarmUpTrialStored,
)
from netbench.model.search import SearchResult, SearchState
from netbench.model.verdict import ReasonKind, Verdict, WarningKind
from netbench.report.formats import count, mbps, percent
from netbench.report.page import write_report
from netbench.report.stability import steadiness_warnings
from netbench.report.summary_json import write_summary
from netbench.report.tables.searches import bounds_text, remark
from netbench.results.directory import ResultDirectory
from netbench.signals import Stopped, shielded, stopping_on_signals
from netbench.statistics.drift import steadiness_of
from netbench.statistics.groups import group_trials, grouped

_QUIET_S = 30.0  # a longer silence in a log would look like a hang
_REFRESHES_PER_S = 2  # each costs CPU time of the measured machine


class ConsoleProgress:
    """An observer that shows the current trial, the numbers of the last one, the trials left and the expected end.

    On a terminal below a bar; otherwise one line per trial, and a reminder after each `quiet_s` seconds without a line.
    """

    def __init__(self, console: Console, quiet_s: float = _QUIET_S) -> None:
        self._console, self._quiet_s = console, quiet_s
        self._state = _State()
        self._bar = _Bar(console, self._state) if console.is_terminal and not console.is_dumb_terminal else None
        self._printed, self._ended = Flag(), Flag()
        self._reminder: Thread | None = None

    def on(self, event: Event) -> None:
        """Show an event."""
        self._state.note(event)
        if isinstance(event, CampaignStarted):
            self._start()
        for line in _lasting_lines(event) if self._bar else (*_lines(event, self._state), *_lasting_lines(event)):
            self._print(line)
        if self._bar:
            self._bar.show_state()
        if isinstance(event, CampaignFinished | CampaignStopped):
            self.close()

    def close(self) -> None:
        """Restore the terminal, and end the reminders."""
        if self._bar:
            self._bar.stop()
        self._ended.set()
        self._printed.set()
        if self._reminder is not None:
            self._reminder.join()
            self._reminder = None

    def _start(self) -> None:
        if self._bar:
            self._bar.start()
        else:
            with shielded():  # `close` could not join a thread whose start a signal interrupted
                self._reminder = Thread(target=self._remind, daemon=True)
                self._reminder.start()

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=self._bar is None)
        self._printed.set()

    def _remind(self) -> None:
        """Print the current activity after each period without output."""
        while not self._ended.is_set():
            if self._printed.wait(self._quiet_s):
                self._printed.clear()
            else:
                parts = (f"still running: {self._state.now or 'work'}", self._state.end)
                self._console.print("; ".join(filter(None, parts)), markup=False, highlight=False, soft_wrap=True)


class _State:
    """The progress of a campaign, according to its events; times are those of time.time()."""

    def __init__(self) -> None:
        self.planned: int | None = None
        self.expected: int | None = None  # trials, where the results decide how many there will be
        self.done = 0
        self.ends_at: float | None = None
        self.now = ""  # the current activity
        self.last = ""  # the result of the last trial
        self.verdicts: Counter[str] = Counter()  # trials by verdict, except valid ones
        self.reasons: dict[str, Counter[str]] = {}  # by verdict, the frequency of each reason
        self.bounds: dict[str, str] = {}  # by goal, for the current search

    def note(self, event: Event) -> None:
        """Update the state with an event."""
        match event:
            case CampaignStarted():
                self.planned, self.expected, self.done = event.planned, event.expected, event.done
                self._ends_in(event.expected_s)
            case UutReady():
                self.now = f"{event.uut} is ready"
            case SweepEnded() if self.planned is not None:
                self.planned -= event.sweep.skipped_trials
            case BoundsNarrowed() if event.found.state is SearchState.SEARCHING:
                self.bounds[event.found.goal] = _narrowed(event.found)
            case BoundsNarrowed():
                self.bounds.pop(event.found.goal, None)
            case WarmUpTrialStored():
                self.now = _warm_up(event)
            case TrialStarted():
                self.now = event.key + (f" (attempt {event.attempt})" if event.attempt != 1 else "")
            case TrialStored():
                self.done += 1
                self.now = "work between trials"
                self.expected = event.expected
                self.last = _trial(event)
                self._ends_in(event.left_s)
                if event.verdict != Verdict.VALID.value:
                    self.verdicts[event.verdict] += 1
                    decisive = [why for why in event.reasons if ReasonKind(why).verdict.value == event.verdict]
                    self.reasons.setdefault(event.verdict, Counter()).update(decisive)

    def _ends_in(self, seconds: float | None) -> None:
        self.ends_at = None if seconds is None else time.time() + seconds

    @property
    def number(self) -> str:
        """The number of finished trials, with the total if it is known."""
        if self.planned is not None:
            return f"{self.done}/{self.planned}"
        return str(self.done) if self.expected is None else f"{self.done} of about {max(self.expected, self.done)}"

    @property
    def end(self) -> str:
        """The expected end; empty if unknown."""
        if self.ends_at is None:
            return ""
        now = time.time()
        ends_at = max(self.ends_at, now)
        return f"ends about {time.strftime('%H:%M:%S', time.localtime(ends_at))}, in {duration_text(ends_at - now)}"

    @property
    def doubts(self) -> str:
        """The number of trials that are not valid, with reasons, most frequent first; empty if all are valid."""
        return "; ".join(
            f"{number} {verdict} ({', '.join(f'{why} {times}' for why, times in self.reasons[verdict].most_common())})"
            for verdict, number in self.verdicts.items()
        )


class _Bar(Progress):
    """A bar, and below it the result of the last trial, the current activity, and the reasons against trials so far."""

    def __init__(self, console: Console, state: _State) -> None:
        self._state = state
        super().__init__(
            BarColumn(bar_width=20),
            TextColumn("{task.fields[number]}  {task.fields[end]}", markup=False),
            console=console,
            transient=True,
            refresh_per_second=_REFRESHES_PER_S,
        )
        self._task = self.add_task("", total=None, number="", end="")

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield the bar and its lines, which wrap between words."""
        state = self._state
        for task in self.tasks:  # empty while the constructor runs
            task.fields.update(number=state.number, end=state.end)
        yield self.make_tasks_table(self.tasks)
        for text, style in (
            (state.last and f"last: {state.last}", ""),
            ("  ".join((*state.bounds.values(), state.now)), "dim"),
            (state.doubts, "yellow"),
        ):
            if text:
                yield Text(text, style=style)

    def show_state(self) -> None:
        """Move the bar to the number of finished trials."""
        self.update(self._task, total=self._state.planned or self._state.expected, completed=self._state.done)


def duration_text(seconds: float) -> str:
    """Return a time in everyday units: `45 s`, `3 min 20 s`, `2 h 05 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def _lines(event: Event, state: _State) -> Iterator[str]:
    """Yield the lines of an event where there is no bar; the bar has them in its own lines."""
    match event:
        case CampaignStarted():
            about = "" if event.expected_s is None else f", about {duration_text(event.expected_s)}"
            if event.planned is not None:
                yield f"{event.planned - event.done} of {event.planned} trials to measure{about}"
            elif event.expected is not None:
                yield f"about {event.expected - event.done} of {event.expected} trials to measure{about}"
            else:
                yield f"number of trials depends on the results{about}; {event.done} are done"
        case TrialStored():
            yield f"{state.number} {state.last}" + (f"; {state.end}" if state.end else "")
        case BoundsNarrowed() if event.found.state is SearchState.SEARCHING:
            yield f"  {_narrowed(event.found)}"
        case WarmUpTrialStored():
            yield _warm_up(event)


def _lasting_lines(event: Event) -> Iterator[str]:
    """Yield the lines of an event that are printed on every output."""
    match event:
        case UutFailed():
            yield f"UUT {event.uut} failed: {event.why}"
        case NeighboursFailed():
            yield f"a neighbour of UUT {event.uut} failed: {event.why}"
        case MachineGone():
            yield f"{event.why}; the testbed is taken down"
        case CampaignWaits():
            yield f"waiting until netbench with process id {event.pid} (topology {event.topology}) has ended"
        case CampaignDisturbed():
            yield f"warning: {event.text}"
        case CapturesFull():
            limit = f"captures_limit: {event.limit_mib}M"
            yield f"captures are no longer kept: those of {event.key} would exceed {limit}"
        case NoiseFloorMeasured():
            yield str(NoiseFloor(event.half_width, event.repeats, event.trial))
        case SweepEnded():
            yield f"{event.sweep} ({count(event.sweep.skipped_trials, 'trial')})"
        case BoundsNarrowed() if event.found.state is not SearchState.SEARCHING:
            found = event.found
            note = f" ({remark(found)})" if remark(found) else ""
            trials = f"{count(found.trials, 'trial')}, {found.seconds:,.0f} s of traffic"
            yield f"{found.key}: {bounds_text(found)} in {trials}{note}"


def _trial(event: TrialStored) -> str:
    """Return a trial with its verdict and its numbers, if there are any."""
    why = f" ({', '.join(event.reasons)})" if event.reasons else ""
    if event.flows:
        return f"{event.key} {event.verdict}{why}: {event.flows}"
    if event.offered_mbps is None or event.throughput_mbps is None:
        return f"{event.key} {event.verdict}{why}"
    out, offered = mbps(event.throughput_mbps), mbps(event.offered_mbps)
    lost = "" if event.loss_ratio is None else f", {percent(event.loss_ratio)} lost"
    return f"{event.key} {event.verdict}{why}: {out} of {offered} Mbit/s forwarded{lost}"


def _warm_up(event: WarmUpTrialStored) -> str:
    return f"{event.uut}: warm-up trial {event.number} {event.verdict}"


def _narrowed(found: SearchResult) -> str:
    return f"{found.goal}: {bounds_text(found)}"


_M_ARENA_MAX = -8  # malloc.h


def carry_out(directory: ResultDirectory, walk: Callable[[Sequence[Observer]], object], *, strict: bool) -> None:
    """Run a campaign with progress on the console, then print the tables and write the report.

    `strict`: raise typer.Exit(1) if trials stayed invalid. A search may contain invalid trials, so it fails only if it
    has no result.
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
    verdicts = [trial.verdict for trial in results.wanted_trials]
    if invalid := verdicts.count(Verdict.INVALID):
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
            console.print(visible(f"report of the trials so far: {directory.report}"), markup=False, soft_wrap=True)
    except NetbenchError as error:  # for example a full disk, which also stopped the campaign and is reported later
        console.print(printable(f"no report could be written: {error}"), markup=False, soft_wrap=True)


def _show(results: CampaignResults, directory: ResultDirectory, console: PrintingConsole) -> None:
    console.print(findings_text(results))
    for searches in grouped(results.maxima_searches, lambda search: search.unit).values():
        console.print(searches_table(results, searches))
    if results.searches:
        console.print(searches_table(results, results.searches))
    elif any(True for _ in results.wanted_trials):
        console.print(flows_table(results) if results.has_flows else summary_table(results))
    else:
        console.print(f"no table of results yet: only {count(len(results.trials), 'calibration trial')} so far")
    if (tests := rfc2544_table(results)) is not None:
        console.print(tests)
    write_report(results, directory.report)
    write_summary(results, directory.summary)
    warnings = list(results.warnings)
    if not results.searches:
        warnings += steadiness_warnings(steadiness_of(group_trials(results)))
    for warning in warnings:
        if warning.kind in (
            WarningKind.PACKET_REFUSED,
            WarningKind.WORKLOAD_REFUSED,
        ):  # tables have no rows that could show it
            console.print(warning.text, markup=False, soft_wrap=not console.is_terminal)
    if warnings:
        kinds = ", ".join(dict.fromkeys(warning.kind.value for warning in warnings))
        text = f"warnings, explained in the report: {kinds}"
        console.print(text, markup=False, soft_wrap=not console.is_terminal)
