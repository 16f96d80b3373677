"""What a campaign shows while it runs: lines in a file, a bar on a terminal."""

import io
import re

import pytest
from rich.console import Console

from netbench.cli.progress import ConsoleProgress
from netbench.model.events import (
    CampaignFinished,
    CampaignStarted,
    CampaignStopped,
    TrialStarted,
    TrialStored,
    UutReady,
)

KEY = "bridge/dedicated/s1/64/1000fps/1"


def started(planned=4, done=0, expected_s=12.4):
    return CampaignStarted("lab", "one", planned, done, expected_s)


def stored(verdict="valid", key=KEY):
    return TrialStored(key, 0, verdict)


def shown(*events, terminal=False, width=120) -> str:
    text = io.StringIO()
    progress = ConsoleProgress(Console(file=text, force_terminal=terminal, width=width))
    for event in events:
        progress.on(event)
    progress.close()
    return text.getvalue()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_line_for_each_trial_where_there_is_no_terminal():
    ready = UutReady("bridge")
    trial = TrialStarted(KEY, 0, 1)
    finished = CampaignFinished(4)
    assert shown(started(), ready, trial, stored(), stored("invalid"), finished) == (
        f"4 of 4 trials to measure, about 12 s\n1/4 {KEY} valid\n2/4 {KEY} invalid\n"
    )


def test_what_is_done_already_counts():
    assert shown(started(planned=10, done=7), stored()) == f"3 of 10 trials to measure, about 12 s\n8/10 {KEY} valid\n"


def test_a_line_is_not_broken_however_narrow_the_console_seems():
    assert shown(started(), stored(key=KEY * 5), width=40).splitlines()[1] == f"1/4 {KEY * 5} valid"


def test_a_bar_on_a_terminal():
    again = TrialStarted(KEY, 0, 2)
    text = plain(shown(started(), again, stored("invalid"), terminal=True))
    assert "ends about" in text
    assert f"{KEY} (attempt 2)" in text
    assert "1/4" in text
    assert "1 invalid" in text


def test_a_first_attempt_is_not_numbered():
    trial = TrialStarted(KEY, 0, 1)
    assert "attempt" not in shown(started(), trial, stored(), terminal=True)


@pytest.mark.parametrize("last", [stored(), CampaignStopped("SIGINT")])
def test_the_cursor_is_back_when_it_is_over(last):
    text = shown(started(), last, terminal=True)
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_closing_what_never_began_shows_nothing():
    assert shown() == ""


def test_where_results_decide_what_comes_next_nobody_knows_how_many_there_will_be():
    assert shown(started(planned=None, done=2, expected_s=None), stored()) == (
        f"as many trials to measure as results ask for; 2 are done\n3 {KEY} valid\n"
    )
    assert f"{KEY} (attempt 2)" in plain(
        shown(started(planned=None, expected_s=None), TrialStarted(KEY, 0, 2), terminal=True)
    )
