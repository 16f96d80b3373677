"""How a campaign shows on the console: a live bar on a terminal, plain lines anywhere else."""

import time
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from netbench.model.events import (
    BoundsNarrowed,
    CampaignDisturbed,
    CampaignFinished,
    CampaignStarted,
    CampaignStopped,
    CampaignWaits,
    CapturesFull,
    Event,
    NeighboursFailed,
    SweepEnded,
    TrialStarted,
    TrialStored,
    UutFailed,
    UutReady,
    WarmUpTrialStored,
)
from netbench.model.search import SearchResult, SearchState
from netbench.report.formats import count
from netbench.report.searches import bounds_text, remark


class _ExpectedEnd(ProgressColumn):
    """When the campaign should be over, from the pace so far; from the plan before there is any."""

    def render(self, task: Task) -> Text:
        left_s = task.time_remaining
        if left_s is None:
            left_s = float(task.fields["expected_s"])
        end = time.strftime("%H:%M:%S", time.localtime(time.time() + left_s))
        return Text(f"ends about {end}", style="dim")


class _View(Protocol):
    def on(self, event: Event) -> None: ...
    def close(self) -> None: ...


class ConsoleProgress:
    """An observer that shows the current trial, what is left and the expected end."""

    def __init__(self, console: Console) -> None:
        self._view: _View = _LiveBar(console) if console.is_terminal else _Lines(console)

    def on(self, event: Event) -> None:
        """Show an event."""
        self._view.on(event)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._view.close()


class _LiveBar:
    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[invalid]}", style="red"),
            _ExpectedEnd(),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, invalid="", expected_s=0.0)
        self._invalid = 0
        self._bounds: dict[str, str] = {}  # of each goal of the search that is going on

    def on(self, event: Event) -> None:
        match event:
            case CampaignStarted():
                self._progress.start()
                expected_s = event.expected_s or 0.0
                self._progress.update(self._task, total=event.planned, completed=event.done, expected_s=expected_s)
            case UutReady():
                self._progress.update(self._task, description=f"{event.uut}: ready")
            case UutFailed() | NeighboursFailed() | CampaignWaits() | CampaignDisturbed() | CapturesFull():
                self._progress.console.print(_sentence(event), markup=False, highlight=False, soft_wrap=True)
            case SweepEnded():
                self._progress.console.print(_ended(event), markup=False, highlight=False, soft_wrap=True)
                total = self._progress.tasks[self._task].total
                self._progress.update(self._task, total=(total or 0) - event.sweep.skipped_trials)
            case BoundsNarrowed() if event.found.state is not SearchState.SEARCHING:
                self._bounds.pop(event.found.goal, None)
                self._progress.console.print(_found(event.found), markup=False, highlight=False, soft_wrap=True)
            case BoundsNarrowed():
                self._bounds[event.found.goal] = _narrowed(event.found)
            case WarmUpTrialStored():
                self._progress.update(self._task, description=_warmed_up(event))
            case TrialStarted():
                again = f" (attempt {event.attempt})" if event.attempt != 1 else ""
                self._progress.update(
                    self._task, description="  ".join((*self._bounds.values(), f"{event.key}{again}"))
                )
            case TrialStored():
                self._invalid += event.verdict == "invalid"
                shown = f"{self._invalid} invalid" if self._invalid else ""
                self._progress.update(self._task, advance=1, invalid=shown)
            case CampaignFinished() | CampaignStopped():
                self.close()

    def close(self) -> None:
        self._progress.stop()


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._planned: int | None = 0
        self._done = 0

    def on(self, event: Event) -> None:
        match event:
            case CampaignStarted(planned=None):
                self._planned, self._done = None, event.done
                about = "" if event.expected_s is None else f", about {event.expected_s:.0f} s"
                self._say(f"as many trials to measure as results ask for{about}; {event.done} are done")
            case CampaignStarted():
                self._planned, self._done = event.planned, event.done
                about = "" if event.expected_s is None else f", about {event.expected_s:.0f} s"
                self._say(f"{(event.planned or 0) - event.done} of {event.planned} trials to measure{about}")
            case UutFailed() | NeighboursFailed() | CampaignWaits() | CampaignDisturbed() | CapturesFull():
                self._say(_sentence(event))
            case SweepEnded():
                self._planned = (self._planned or 0) - event.sweep.skipped_trials
                self._say(_ended(event))
            case BoundsNarrowed() if event.found.state is not SearchState.SEARCHING:
                self._say(_found(event.found))
            case BoundsNarrowed():
                self._say(f"  {_narrowed(event.found)}")
            case WarmUpTrialStored():
                self._say(_warmed_up(event))
            case TrialStored():
                self._done += 1
                number = self._done if self._planned is None else f"{self._done}/{self._planned}"
                self._say(f"{number} {event.key} {event.verdict}")

    def close(self) -> None:
        """Nothing to put back."""

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _warmed_up(event: WarmUpTrialStored) -> str:
    return f"{event.uut}: warm-up trial {event.number} {event.verdict}"


def _ended(event: SweepEnded) -> str:
    return f"{event.sweep} ({count(event.sweep.skipped_trials, 'trial')})"


def _sentence(event: UutFailed | NeighboursFailed | CampaignWaits | CampaignDisturbed | CapturesFull) -> str:
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
    """Likewise, while it is going on."""
    return f"{found.goal}: {bounds_text(found)}"


def _found(found: SearchResult) -> str:
    """One line for a console or a log, once it is over."""
    told = f" ({remark(found)})" if remark(found) else ""
    return (
        f"{found.key}: {bounds_text(found)} in {count(found.trials, 'trial')}, {found.seconds:,.0f} s of traffic{told}"
    )
