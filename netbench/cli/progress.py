"""The progress of a campaign on the console: a live bar on a terminal, plain lines on any other output."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Event as Flag
from threading import Thread
from typing import Protocol

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from netbench.model.campaign import NoiseFloor
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
    SweepEnded,
    TrialStarted,
    TrialStored,
    UutFailed,
    UutReady,
    WarmUpTrialStored,
)
from netbench.model.search import SearchResult, SearchState
from netbench.model.verdict import ReasonKind, Verdict
from netbench.report.formats import count, mbps, percent
from netbench.report.tables.searches import bounds_text, remark

_QUIET_S = 30.0  # a longer silence in a log would look like a hang
_REFRESHES_PER_S = 2  # each costs CPU time of the measured machine


class _View(Protocol):
    def on(self, event: Event) -> None: ...
    def close(self) -> None: ...


class ConsoleProgress:
    """An observer that shows the current trial, the numbers of the last one, the trials left and the expected end."""

    def __init__(self, console: Console) -> None:
        has_bar = console.is_terminal and not console.is_dumb_terminal
        self._view: _View = _LiveBar(console) if has_bar else _Lines(console)

    def on(self, event: Event) -> None:
        """Show an event."""
        self._view.on(event)

    def close(self) -> None:
        """Restore the terminal."""
        self._view.close()


@dataclass(slots=True)
class _State:
    """The progress of a campaign, according to its events; times are those of time.time()."""

    planned: int | None = None
    expected: int | None = None  # trials, where the results decide how many there will be
    done: int = 0
    ends_at: float | None = None
    now: str = ""  # the current activity
    last: str = ""  # the result of the last trial
    verdicts: Counter[str] = field(default_factory=Counter)  # trials by verdict, except valid ones
    against: dict[str, Counter[str]] = field(default_factory=dict)  # by verdict, the frequency of each reason
    bounds: dict[str, str] = field(default_factory=dict)  # by goal, for the current search

    def note(self, event: Event) -> None:
        """Update the state with an event."""
        match event:
            case CampaignStarted():
                self.planned, self.expected, self.done = event.planned, event.expected, event.done
                self._ends_in(event.expected_s)
            case UutReady():
                self.now = f"{event.uut} is ready"
            case SweepEnded():
                self.planned = None if self.planned is None else self.planned - event.sweep.skipped_trials
            case BoundsNarrowed() if event.found.state is not SearchState.SEARCHING:
                self.bounds.pop(event.found.goal, None)
            case BoundsNarrowed():
                self.bounds[event.found.goal] = _narrowed(event.found)
            case WarmUpTrialStored():
                self.now = _warmed_up(event)
            case TrialStarted():
                self.now = event.key + (f" (attempt {event.attempt})" if event.attempt != 1 else "")
            case TrialStored():
                self.done += 1
                self.expected = event.expected
                self.last = _came_of(event)
                self._ends_in(event.left_s)
                if event.verdict != Verdict.VALID.value:
                    self.verdicts[event.verdict] += 1
                    led_to_it = [why for why in event.reasons if ReasonKind(why).verdict.value == event.verdict]
                    self.against.setdefault(event.verdict, Counter()).update(led_to_it)

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
            f"{number} {verdict} ({', '.join(f'{why} {times}' for why, times in self.against[verdict].most_common())})"
            for verdict, number in self.verdicts.items()
        )


class _LiveBar(Progress):
    """A bar, and below it the result of the last trial, the current activity, and the reasons against trials so far."""

    def __init__(self, console: Console) -> None:
        self._state = _State()
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

    def on(self, event: Event) -> None:
        self._state.note(event)
        if isinstance(event, CampaignStarted):
            self.start()
        for line in _told(event):
            self.console.print(line, markup=False, highlight=False)
        self.update(self._task, total=self._state.planned or self._state.expected, completed=self._state.done)
        if isinstance(event, CampaignFinished | CampaignStopped):
            self.close()

    def close(self) -> None:
        self.stop()


class _Lines:
    """One line per trial, and a reminder with the expected end after half a minute without a line."""

    def __init__(self, console: Console, quiet_s: float = _QUIET_S) -> None:
        self._console, self._quiet_s = console, quiet_s
        self._state = _State()
        self._said, self._ended = Flag(), Flag()
        self._reminder: Thread | None = None

    def on(self, event: Event) -> None:
        self._state.note(event)
        match event:
            case CampaignStarted():
                self._say(_begins(event))
                self._reminder = Thread(target=self._remind, daemon=True)
                self._reminder.start()
            case TrialStored():
                end = f"; {self._state.end}" if self._state.end else ""
                self._say(f"{self._state.number} {self._state.last}{end}")
            case BoundsNarrowed() if event.found.state is SearchState.SEARCHING:
                self._say(f"  {_narrowed(event.found)}")
            case WarmUpTrialStored():
                self._say(_warmed_up(event))
            case CampaignFinished() | CampaignStopped():
                self.close()
        for line in _told(event):
            self._say(line)

    def close(self) -> None:
        self._ended.set()
        self._said.set()
        if self._reminder is not None:
            self._reminder.join()
            self._reminder = None

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        self._said.set()

    def _remind(self) -> None:
        """Print the current activity after each period without output."""
        while not self._ended.is_set():
            if self._said.wait(self._quiet_s):
                self._said.clear()
            else:
                words = (f"still at {self._state.now or 'work'}", self._state.end)
                self._console.print("; ".join(filter(None, words)), markup=False, highlight=False, soft_wrap=True)


def duration_text(seconds: float) -> str:
    """Return a time in everyday units: `45 s`, `3 min 20 s`, `2 h 05 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def _begins(event: CampaignStarted) -> str:
    about = "" if event.expected_s is None else f", about {duration_text(event.expected_s)}"
    if event.planned is None and event.expected is not None:
        return f"about {event.expected - event.done} of {event.expected} trials to measure{about}"
    if event.planned is None:
        return f"as many trials to measure as results ask for{about}; {event.done} are done"
    return f"{event.planned - event.done} of {event.planned} trials to measure{about}"


def _came_of(event: TrialStored) -> str:
    """Return a trial with its verdict and its numbers, if there are any."""
    why = f" ({', '.join(event.reasons)})" if event.reasons else ""
    if event.offered_mbps is None or event.throughput_mbps is None:
        return f"{event.key} {event.verdict}{why}"
    out, offered = mbps(event.throughput_mbps), mbps(event.offered_mbps)
    lost = "" if event.loss_ratio is None else f", {percent(event.loss_ratio)} lost"
    return f"{event.key} {event.verdict}{why}: {out} of {offered} Mbit/s out{lost}"


def _told(event: Event) -> Iterator[str]:
    """Yield the lasting lines of an event, which both views print."""
    match event:
        case UutFailed() | NeighboursFailed() | MachineGone() | CampaignWaits() | CampaignDisturbed() | CapturesFull():
            yield _sentence(event)
        case NoiseFloorMeasured():
            yield str(NoiseFloor(event.half_width, event.repeats, event.trial))
        case SweepEnded():
            yield _ended(event)
        case BoundsNarrowed() if event.found.state is not SearchState.SEARCHING:
            yield _found(event.found)


def _warmed_up(event: WarmUpTrialStored) -> str:
    return f"{event.uut}: warm-up trial {event.number} {event.verdict}"


def _ended(event: SweepEnded) -> str:
    return f"{event.sweep} ({count(event.sweep.skipped_trials, 'trial')})"


def _sentence(
    event: UutFailed | NeighboursFailed | MachineGone | CampaignWaits | CampaignDisturbed | CapturesFull,
) -> str:
    if isinstance(event, MachineGone):
        return f"{event.why}; the testbed is taken down"
    if isinstance(event, CapturesFull):
        limit = f"captures_limit: {event.limit_mib}M"
        return f"captures are not kept any more: with those of {event.key} they would be more than {limit}"
    if isinstance(event, CampaignDisturbed):
        return f"warning: {event.text}"
    if isinstance(event, CampaignWaits):
        return f"waiting until netbench with process id {event.pid} (topology {event.topology}) has ended"
    who = f"UUT {event.uut}"
    if isinstance(event, NeighboursFailed):
        who = f"what is beside {who}"
    return f"{who} failed: {event.why}"


def _narrowed(found: SearchResult) -> str:
    """Return one line for a search that is still running."""
    return f"{found.goal}: {bounds_text(found)}"


def _found(found: SearchResult) -> str:
    """Return one line for a finished search."""
    note = f" ({remark(found)})" if remark(found) else ""
    return (
        f"{found.key}: {bounds_text(found)} in {count(found.trials, 'trial')}, {found.seconds:,.0f} s of traffic{note}"
    )
