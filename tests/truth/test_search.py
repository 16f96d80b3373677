"""Searches on a UUT that forwards exactly a known rate."""

import json
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from tests.commands import INLINE, netbench, settings
from tests.netns.watching import events, pids_in, stored, wait_for
from tests.unit.inputs import topology

pytestmark = pytest.mark.root

FPS, BURST = 15_000, 1000
TRIAL_S = 0.5
LAB = """
hosts: {{source: {{}}, uut: {{}}, sink: {{}}}}
links:
  - {{ends: [source/tx1, uut/in1], rate: 1Gbit/s}}
  - {{ends: [uut/out1, sink/rx1], rate: 1Gbit/s}}
streams:
  - {{name: s1, source: source/tx1, ingress: uut/in1, egress: uut/out1, sink: sink/rx1}}
uuts:
  - {{name: limited, kind: reference, forward: {forward}, limit: {{fps: {fps}, burst: {burst}}}}}
"""
HIGHEST_FPS = 40_000.0
# A delayed source sends its late frames all at once: the bucket has room for those of 60 ms. The frames of a full
# bucket pass in addition to the rate, so all trials have the same length.
SHORT = [
    *INLINE,
    *settings(schedule__highest=f"{HIGHEST_FPS:.0f}fps", schedule__lowest="1000fps"),
    *settings(
        duration=f"{TRIAL_S * 1000:.0f}ms",
        schedule__initial="500ms",
        schedule__duration_sum="1500ms",
        max_lateness="200ms",
        retries=6,  # of a trial with a delayed source
    ),
    *settings(generator="afpacket", sink="tcpdump"),
]


def most_of_upper(truth, search):
    """Return the highest right value of an upper bound in frames/s."""
    return HIGHEST_FPS if search["why"].startswith("the tester keeps the bounds apart: ") else 1.03 * truth


def found_in(results):
    return json.loads((results / "manifest.json").read_text())["searches"]


def test_ndr_and_pdr_are_those_of_the_limit(tmp_path):
    """Within 1 %; the width of the search may be half of that.

    A source that is late at the end of a trial offers up to 1 % less than the requested load, and the lower bound is
    what it offered. The upper bound is the next load above the requested one, so it may be farther away. Where this
    machine stalls, it is the next load with a loss that the tester cannot explain, and the search reports that.
    """
    lab = tmp_path / "limited.yaml"
    lab.write_text(LAB.format(forward="route", fps=FPS, burst=BURST))
    done = netbench("search", lab, "-o", tmp_path / "results", *SHORT, *settings(frame_sizes=1518), timeout_s=240)
    assert done.returncode == 0, done.stdout + done.stderr
    found = found_in(tmp_path / "results")
    assert [(search["goal"], search["kind_of_traffic"]) for search in found] == [("NDR", 1518), ("PDR 0.5 %", 1518)]
    for search in found:
        truth = (FPS + BURST / TRIAL_S) / (1 - search["loss_ratio"])
        assert search["state"] == "found", search
        assert 0.98 * truth <= search["lower"] <= 1.01 * truth, search
        assert 0.99 * truth <= search["upper"] <= most_of_upper(truth, search), search


@pytest.mark.skipif(not shutil.which("lxc-start"), reason="needs LXC: apt-get install lxc")
def test_the_limit_of_a_guest_that_dies_meanwhile_is_found(tmp_path, results, start):
    """It is started again, and the trial in which it died is repeated."""
    lab = topology(1, [{"name": "box", "kind": "container", "forward": "route"}], name="nbt-box")
    file = tmp_path / "box.yaml"
    file.write_text(lab.model_dump_json(exclude_none=True))
    search = start("search", file, "-o", results, *SHORT, *settings(frame_sizes=64, tolerance="100%"))
    limit_rate("nb-nbt-box-uut", "nb-in1")
    wait_for(lambda: stored(results) > 3 and is_measuring(results), timeout_s=60)
    for pid in pids_in(guest_netns("box"), ""):
        with suppress(ProcessLookupError):  # the others end with the first one
            os.kill(pid, signal.SIGKILL)
    out, err = search.communicate(timeout=100)
    assert search.returncode == 0, out + err
    assert [event["uut"] for event in events(results) if event["kind"] == "uut-ready"] == ["box", "box"]
    for limit in found_in(results):
        truth = (FPS + BURST / TRIAL_S) / (1 - limit["loss_ratio"])
        assert limit["state"] == "found", limit
        # A container loses more frames where this machine stalls for a moment, never fewer.
        assert 0.85 * truth <= limit["lower"] <= 1.01 * truth, limit
        assert limit["lower"] <= limit["upper"] <= most_of_upper(truth, limit), limit


def is_measuring(results):
    kinds = [event["kind"] for event in events(results)]
    return kinds.count("trial-started") > kinds.count("trial-finished")


def limit_rate(netns, device):
    """Limit the rate of a NIC of a testbed that is coming up."""
    links = ["ip", "-n", netns, "link", "show", device]
    wait_for(lambda: subprocess.run(links, capture_output=True, check=False).returncode == 0)
    rule = f"limit rate over {FPS}/second burst {BURST} packets counter drop"
    table = f"table netdev x {{ chain c {{ type filter hook ingress device {device} priority 0; {rule}; }} ; }}"
    subprocess.run(["ip", "netns", "exec", netns, "nft", table], check=True)


def guest_netns(uut):
    (name,) = (path.name for path in Path("/run/netns").iterdir() if path.name.endswith(f"-uut-{uut}"))
    return name


def test_searches_that_cannot_succeed_end(tmp_path):
    """A UUT that drops all, and one that no requested load overloads: a clear result for each."""
    lab = tmp_path / "ends.yaml"
    limited = LAB.format(forward="bridge", fps=FPS, burst=BURST).rstrip()
    dead = limited.replace("name: limited", "name: dead").replace(
        f"limit: {{fps: {FPS}, burst: {BURST}}}", "drop: {k: 1, n: 1}"
    )
    free = dead.splitlines()[-1].replace("name: dead", "name: free").replace("{k: 1, n: 1}", "{k: 0, n: 7}")
    lab.write_text(f"{dead}\n{free}\n")
    options = settings(frame_sizes=64, schedule__highest="3000fps")
    done = netbench("search", lab, "-o", tmp_path / "results", *SHORT, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    states = {(search["uut"], search["state"]) for search in found_in(tmp_path / "results")}
    assert states == {("dead", "at-most"), ("free", "at-least")}
    assert "even at the lowest load tried" in done.stdout
    assert "≥ 3.0" in done.stdout
    assert "limited by the highest load requested" in done.stdout


def test_the_tests_of_rfc_2544_on_a_bucket_of_known_depth(tmp_path):
    """The longest burst fills the bucket, and a reset lasts as long as the sink receives no frame.

    It is slower than in the other tests: a burst may be late by 5 %, which is 8 ms for the longest one here.
    """
    fps, highest_fps = 3500, 10_000.0
    lab = tmp_path / "limited.yaml"
    lab.write_text(LAB.format(forward="bridge", fps=fps, burst=BURST))
    suite = settings(
        frame_sizes=64,
        duration=f"{TRIAL_S * 1000:.0f}ms",
        schedule__highest=f"{highest_fps:.0f}fps",
        schedule__lowest="1000fps",
        schedule__method="tst009",
        schedule__verified=3,
        schedule__latency="{duration: 500ms, times: 2}",
        schedule__back_to_back="{longest: 400ms, times: 3}",
        schedule__recovery="{duration: 1s, reduced: 500ms, times: 1}",
        schedule__reset="{duration: 3s, before: 1s, times: 1}",
        generator="afpacket",
        sink="tcpdump",
        max_lateness="200ms",
        tolerance="5%",
        retries=6,
    )
    done = netbench("run", lab, "rfc2544-short", "-o", tmp_path / "results", *suite, timeout_s=240)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = json.loads((tmp_path / "results" / "manifest.json").read_text())["searches"]
    tests = found["tests"]
    throughput = fps + BURST / TRIAL_S  # the frames of a full bucket pass in addition
    assert found["lower"] == pytest.approx(throughput, rel=0.05)
    assert len(tests["latency"]["means_ns"]) == 2
    losses = {round(loss["share"], 1): loss["loss_ratio"] for loss in tests["losses"]}
    # A delayed source sends for up to 5 % longer. At 90 % of the load 8 % less is lost.
    assert losses[1.0] == pytest.approx(1 - throughput / highest_fps, rel=0.05)
    assert list(losses) == [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1][: len(losses)]
    lossless = [ratio == 0 for ratio in losses.values()]
    assert not any(lossless[:5]), "as far as 6,000 frames/s"
    # It continues after a trial that stayed invalid, which has no ratio.
    assert lossless[-2:] == [True, True] or None in losses.values(), "two in a row lose nothing"
    assert (True, True) not in pairwise(lossless[:-1]), "and the first two are the last"
    # n frames at R fill a bucket of B that drains at C when n·(1 − C/R) = B. A source with late frames needs fewer;
    # while it is 8 ms late in its 160 ms, 28 more frames drain.
    longest = BURST / (1 - fps / highest_fps)
    bursts = tests["back_to_back"]["frames"]
    assert len(bursts) == 3, tests["back_to_back"]
    assert max(bursts) == pytest.approx(longest, rel=0.1), bursts
    # At half the overload the bucket has room at once.
    assert tests["recovery"]["seconds"] == [0.0], tests["recovery"]
    (reset_s,) = tests["reset"]["seconds"]
    assert 0 < reset_s < 2, "it was back before the source had ended"
    assert "Back-to-back frames" in (tmp_path / "results" / "report.html").read_text()
