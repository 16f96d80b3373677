"""The progress of a running campaign: lines in a file, a bar on a terminal."""

import io
import os
import re
import signal
import threading
import time

import pytest
from rich.console import Console

from netbench.cli.progress import ConsoleProgress, duration_text
from netbench.model.campaign import EndedSweep
from netbench.model.events import (
    CampaignDisturbed,
    CampaignFinished,
    CampaignStarted,
    CampaignStopped,
    CampaignWaits,
    SweepEnded,
    TrialStarted,
    TrialStored,
    UutReady,
)
from netbench.model.frame_size import FrameSize
from netbench.signals import Stopped, stopping_on_signals

KEY = "bridge/dedicated/s1/64/1000fps/1"
AGAIN = TrialStarted(KEY, 0, 2)


def started(planned=4, done=0, expected_s=12.4):
    return CampaignStarted("lab", "one", planned, done, expected_s)


def stored(verdict="valid", key=KEY, reasons=(), **more):
    return TrialStored(key, 0, verdict, reasons, **more)


def shown(*events, terminal=False, width=120) -> str:
    text = io.StringIO()
    progress = ConsoleProgress(Console(file=text, force_terminal=terminal, width=width))
    for event in events:
        progress.on(event)
    progress.close()
    return text.getvalue()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


ENDLESS = {"planned": None, "expected_s": None}  # results decide the next trial: the total is unknown


@pytest.mark.parametrize(
    ("events", "lines"),
    [
        (
            [started(), UutReady("bridge"), AGAIN, stored(), stored("invalid"), CampaignFinished(4)],
            ["4 of 4 trials to measure, about 12 s", f"1/4 {KEY} valid", f"2/4 {KEY} invalid"],
        ),
        ([started(planned=10, done=7), stored()], ["3 of 10 trials to measure, about 12 s", f"8/10 {KEY} valid"]),
        (
            [started(**ENDLESS, done=2), stored()],
            ["number of trials depends on the results; 2 are done", f"3 {KEY} valid"],
        ),
        (
            [CampaignWaits(7, "x"), started(), CampaignDisturbed("another")],
            [
                "waiting until netbench with process id 7 (topology x) has ended",
                "4 of 4 trials to measure, about 12 s",
                "warning: another",
            ],
        ),
        ([], []),
    ],
)
def test_a_line_for_each_trial_where_there_is_no_terminal(events, lines):
    assert shown(*events) == "".join(f"{line}\n" for line in lines)


def test_what_a_sweep_leaves_out_is_reported_and_no_longer_waited_for():
    sweep = EndedSweep("bridge", "dedicated", ("s1",), FrameSize.of(64), ("2fps", "3fps"), ("4fps", "max"), 2)
    ended = SweepEnded(sweep)
    reported = "bridge, dedicated, s1, 64 bytes: saturated at 2fps, 3fps; skipped 4fps, max (2 trials)"
    lines = shown(started(), stored(), ended, stored()).splitlines()
    assert lines[1:] == [f"1/4 {KEY} valid", reported, f"2/2 {KEY} valid"]
    text = plain(shown(started(), stored(), ended, terminal=True))
    assert reported in text
    assert "1/2" in text


def test_a_line_is_not_broken_however_narrow_the_console_seems():
    assert shown(started(), stored(key=KEY * 5), width=40).splitlines()[1] == f"1/4 {KEY * 5} valid"


def test_a_bar_on_a_terminal():
    text = plain(shown(started(), stored("invalid"), AGAIN, terminal=True))
    assert "ends about" in text
    assert f"{KEY} (attempt 2)" in text
    assert "1/4" in text
    assert f"{KEY} (attempt 2)" in plain(shown(started(**ENDLESS), AGAIN, terminal=True))
    assert "attempt" not in shown(started(), TrialStarted(KEY, 0, 1), stored(), terminal=True), (
        "the first attempt is not printed"
    )


@pytest.mark.parametrize("last", [stored(), CampaignStopped("SIGINT")])
def test_the_cursor_is_back_when_it_is_over(last):
    text = shown(started(), last, terminal=True)
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_a_terminal_that_cannot_go_back_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert shown(started(), stored(), terminal=True).splitlines()[1] == f"1/4 {KEY} valid"


NUMBERS = {"offered_mbps": 13.44, "throughput_mbps": 12.5, "loss_ratio": 0.07, "left_s": 200.4}
SEVERAL = (
    started(),
    stored("invalid", reasons=("saturated", "link-down"), **NUMBERS),
    stored("suspicious", reasons=("foreign-frames", "not-drained"), **NUMBERS),
    AGAIN,
    stored("invalid", reasons=("link-down",), **NUMBERS),
)
CAME_OF = f"{KEY} invalid (saturated, link-down): 12.5 of 13.4 Mbit/s forwarded, 7.000 % lost"


def test_a_line_of_a_trial_has_its_numbers_its_reasons_and_the_end():
    line = shown(*SEVERAL).splitlines()[1]
    assert re.fullmatch(re.escape(f"1/4 {CAME_OF}; ends about ") + r"\d\d:\d\d:\d\d, in 3 min 20 s", line)


def test_the_bar_has_the_last_numbers_and_counts_doubts_with_their_reasons():
    text = plain(shown(*SEVERAL, terminal=True))
    assert f"last: {KEY} invalid (link-down): 12.5 of 13.4 Mbit/s forwarded, 7.000 % lost" in text
    assert "2 invalid (link-down 2); 1 suspicious (foreign-frames 1, not-drained 1)" in text
    assert "in 3 min 20 s" in text


def test_the_bar_fits_80_columns_and_breaks_no_word():
    longest = "qemu-virtio-same-cpu/network-20000fps/s1+s2+s3/1518/20000fps/9"
    lines = plain(
        shown(started(), stored(key=longest, reasons=("foreign-frames",), **NUMBERS), terminal=True, width=80)
    )
    assert f"{longest} valid \n" in lines
    assert max(map(len, lines.replace("\r", "\n").splitlines())) <= 80


def test_a_log_that_was_silent_reports_what_is_being_done_and_when_it_ends():
    text = io.StringIO()
    lines = ConsoleProgress(Console(file=text, width=200), quiet_s=0.005)
    lines.on(started())
    lines.on(AGAIN)
    for _ in range(1000):
        if f"still running: {KEY} (attempt 2); ends about " in text.getvalue():
            break
        time.sleep(0.01)
    lines.close()
    reported = text.getvalue()
    assert f"still running: {KEY} (attempt 2); ends about " in reported
    time.sleep(0.02)
    assert text.getvalue() == reported, "a finished campaign prints nothing more"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")]
)
def test_times_as_people_say_them(seconds, text):
    assert duration_text(seconds) == text


def test_a_signal_during_the_start_of_the_reminders_leaves_nothing_that_cannot_be_closed(monkeypatch):
    begin = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    progress = ConsoleProgress(Console(file=io.StringIO(), width=200))
    with stopping_on_signals(), pytest.raises(Stopped):
        progress.on(started())
    progress.close()
