"""How a campaign shows on the console: a live bar on a terminal, plain lines anywhere else."""

import time
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from netbench.results.events import Event


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

    def on(self, event: Event) -> None:
        details = event.details
        if event.kind == "campaign-started":
            self._progress.start()
            planned, done = int(str(details["planned"])), int(str(details["done"]))
            self._progress.update(self._task, total=planned, completed=done, expected_s=details["expected_s"])
        elif event.kind == "uut-ready":
            self._progress.update(self._task, description=f"{details['uut']}: ready")
        elif event.kind in ("uut-failed", "neighbours-failed"):
            self._progress.console.print(_failed(event), markup=False, highlight=False, soft_wrap=True)
        elif event.kind == "trial-started":
            again = f" (attempt {details['attempt']})" if details["attempt"] != 1 else ""
            self._progress.update(self._task, description=f"{details['key']}{again}")
        elif event.kind == "trial-stored":
            self._invalid += details["verdict"] == "invalid"
            shown = f"{self._invalid} invalid" if self._invalid else ""
            self._progress.update(self._task, advance=1, invalid=shown)
        elif event.kind in ("campaign-finished", "campaign-stopped"):
            self.close()

    def close(self) -> None:
        self._progress.stop()


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._planned = 0
        self._done = 0

    def on(self, event: Event) -> None:
        details = event.details
        if event.kind == "campaign-started":
            self._planned, self._done = int(str(details["planned"])), int(str(details["done"]))
            left, seconds = self._planned - self._done, float(str(details["expected_s"]))
            self._say(f"{left} of {self._planned} trials to measure, about {seconds:.0f} s")
        elif event.kind in ("uut-failed", "neighbours-failed"):
            self._say(_failed(event))
        elif event.kind == "trial-stored":
            self._done += 1
            self._say(f"{self._done}/{self._planned} {details['key']} {details['verdict']}")

    def close(self) -> None:
        """Nothing to put back."""

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _failed(event: Event) -> str:
    who = f"UUT {event.details['uut']}"
    if event.kind == "neighbours-failed":
        who = f"what is beside {who}"
    return f"{who} failed: {event.details['why']}"
