"""The example of an extension in a campaign: installed beside netbench, it sends and receives."""

import pytest

from tests.commands import PATIENT, netbench, rows, settings, verdict_of

pytestmark = pytest.mark.root


def test_a_source_and_a_sink_from_outside_measure(installed, results):
    listing = netbench("list").stdout
    assert "One frame after the other through a plain socket." in listing
    assert "The NIC's own counter of received frames, from any sender." in listing
    chosen = settings(generator="plain", sink="nic-counter", frame_sizes=64, loads="500fps", repetitions=2)
    more = settings(duration="300ms")
    done = netbench("run", "netns", "quick", "-o", results, "--uut", "bridge", *chosen, *more, *PATIENT)
    assert done.returncode == 0, done.stderr
    found = rows(results)
    counted = [(row["sent_frames"], row["received_frames"], verdict_of(row)) for row in found]
    assert counted == [("150", "150", "valid")] * 2
    assert {(row["duplicate_frames"], row["delay_mean_us"]) for row in found} == {("", "")}
    assert {(row["source"], row["sink"]) for row in found} == {("plain", "nic-counter")}
    assert all(row["source_details"].startswith("netbench-example 0.1.0; ") for row in found)
    assert all(row["sink_details"].startswith("Linux ") for row in found)
