"""Whole campaigns on real traffic, including interruptions and failures."""

import contextlib
import csv
import io
import json
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands import FEW, FEW_FRAMES, netbench, rows, settings, verdict_of
from tests.netns.watching import stored, wait_for

pytestmark = pytest.mark.root

SIX = [*FEW, *settings(repetitions=6)]


def test_a_campaign_from_one_command(results):
    done = netbench("run", "netns", "quick", "-o", results, *FEW, *settings(noise_floor="300ms"))
    assert done.returncode == 0, done.stderr
    found = rows(results)
    lost = {row["uut"]: row["lost_frames"] for row in found}
    assert lost == {"bridge": "0", "route": "0", "drops-7-of-100": "14"}
    assert {row["sent_frames"] for row in found} == {str(FEW_FRAMES)}
    assert {(row["source"], row["sink"]) for row in found} == {("afpacket", "tcpdump")}
    assert all("tcpdump version " in row["sink_details"] for row in found)
    assert f"report: {results}/report.html" in done.stdout
    names = {"campaign.sqlite", "manifest.json", "topology.yaml", "profile.yaml", "events.jsonl", "report.html"}
    assert names <= {path.name for path in results.iterdir()}
    assert list((results / "captures").iterdir()) == []
    manifest = json.loads((results / "manifest.json").read_text())
    assert manifest["finished"]
    assert manifest["noise_floor"]["repeats"] >= 3
    assert " between repeats. Intervals of throughput under overload include this." in done.stdout
    (tester,) = manifest["tester"]
    assert tester["hosts"]["uut"]["netns"] == "nb-netns-uut"
    assert tester["streams"]["s1"]["source"]["kind"].startswith("afpacket"), "it has not chosen yet"
    assert manifest["before"]["kernel"]["release"] in tester["hosts"]["uut"]["kernel"]
    nics = manifest["before"]["namespaces"]["nb-netns-uut"]["nics"]
    assert "tx-checksum-ip-generic" in nics["nb-in1"]["offloads"]  # those that are on are listed
    merging = {"rx-gro", "rx-gro-list", "rx-udp-gro-forwarding", "rx-lro", "tx-generic-segmentation"}
    assert not {*merging, "tx-tcp-segmentation"} & set(nics["nb-out1"]["offloads"])
    assert {*merging, "tx-tcp-segmentation"} & set(nics["nb-in1"]["offloads"]) == {"rx-gro"}  # which brings NAPI


@pytest.mark.parametrize(
    ("generator", "sink", "sizes", "uuts"),
    [
        ("afpacket", "tcpdump", "1519,9018", ["bridge", "drops-7-of-100", "route"]),
        ("afpacket", "bpf", "9018", ["drops-7-of-100"]),
        ("xdp", "bpf", "3412", ["drops-7-of-100"]),
    ],
)
def test_frames_larger_than_usual_where_the_links_take_them(results, generator, sink, sizes, uuts):
    wide = settings(topology__links__0__mtu=9000, topology__links__1__mtu=9000, generator=generator, sink=sink)
    chosen = [word for uut in uuts for word in ("--uut", uut)]
    done = netbench("run", "netns", "quick", "-o", results, *chosen, *FEW, *wide, *settings(frame_sizes=sizes))
    assert done.returncode == 0, done.stderr
    found = sorted(
        (row["uut"], int(row["frame_size"]), row["received_frames"], row["lost_at"]) for row in rows(results)
    )
    lost = {"drops-7-of-100": ("186", "bridge (nft drop rule)=14")}
    assert found == [
        (uut, int(size), *lost.get(uut, (str(FEW_FRAMES), ""))) for uut in uuts for size in sizes.split(",")
    ]


@pytest.mark.parametrize("gone", ["| head -n 1", ">/dev/full", ">&- 2>&-"])
def test_a_campaign_does_not_need_a_reader(results, gone):
    """It continues to measure, stores everything, and exits with the right code."""
    drops = ["--uut", "drops-7-of-100", "-o", str(results)]
    command = shlex.join([sys.executable, "-m", "netbench", "run", "netns", "quick", *drops, "--strict", *FEW])
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} {gone}"], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    # The verdict is not checked: a pause of 10 ms makes so short a trial suspicious.
    assert [row["received_frames"] for row in rows(results)] == ["186"]
    assert (results / "report.html").stat().st_size > 10_000


def test_two_at_once_both_say_so_and_a_third_waits_until_they_have_ended(start, tmp_path):
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    bridge = ["--uut", "bridge", *FEW]
    one = start("run", "netns", "quick", "-o", first, *bridge, *settings(repetitions=20, duration="1s"))
    wait_for(lambda: stored(first) >= 1)
    other = start("run", "netns-3", "quick", "-o", second, *bridge, *settings(repetitions=1, streams=1))
    wait_for(lambda: stored(second) >= 1, 60)
    waited = netbench("run", "netns", "quick", "--wait", "-o", third, *bridge)
    printed = [process.communicate(timeout=60)[0] for process in (one, other)]
    assert [one.returncode, other.returncode, waited.returncode] == [0, 0, 0]
    assert f"process id {other.pid}, topology netns-3" in printed[0]
    assert f"process id {one.pid}, topology netns" in printed[1]
    assert all(text.rstrip().splitlines()[-2].count("other-campaign") == 1 for text in printed)
    assert f"waiting until netbench with process id {one.pid} (topology netns) has ended" in waited.stdout
    assert "other-campaign" not in waited.stdout


def test_two_at_once_do_not_disturb_each_other(results, tmp_path, start):
    first = start("run", "netns", "quick", "-o", results, "--uut", "bridge", *SIX, *settings(duration="2500ms"))
    wait_for(lambda: stored(results) >= 1)
    second = netbench("run", "netns", "quick", "-o", tmp_path / "second", *FEW)
    assert second.returncode == 3
    assert f"netbench with process id {first.pid} has locked" in second.stderr
    assert not (tmp_path / "second").exists()
    assert netbench("resume", results).returncode in (3, 4)
    assert netbench("clean").stdout == "nothing to clean up\n"
    first.communicate(timeout=60)
    assert first.returncode == 0
    assert len(rows(results)) == 6


def test_three_streams_at_once_whose_captures_are_kept_when_asked_for(results):
    chosen = [*FEW, *settings(streams="1,2,3", keep_captures="all")]
    done = netbench("run", "netns-3", "quick", "-o", results, "--uut", "bridge", *chosen)
    assert done.returncode == 0, done.stderr
    found = rows(results)
    assert sorted((row["streams"], row["stream"]) for row in found) == [
        (str(many), f"s{number}") for many in (1, 2, 3) for number in range(1, many + 1)
    ]
    assert {(row["sent_frames"], row["received_frames"], verdict_of(row)) for row in found} == {("200", "200", "valid")}
    captures = list((results / "captures").iterdir())
    assert len(captures) == len(found)
    answer = json.loads(netbench("analyze", captures[0], "--json").stdout)
    assert [stream["received_frames"] for stream in answer["streams"]] == [FEW_FRAMES]


def test_a_drop_rule_from_outside_is_reported_exactly(results, start):
    campaign = start("run", "netns", "quick", "-o", results, *SIX, "--uut", "bridge")
    wait_for(lambda: Path("/run/netns/nb-netns-uut").exists() and stored(results) >= 1)
    rules = """
        table bridge outside {
            chain forward {
                type filter hook forward priority 10;
                ip saddr 198.18.0.0/15 numgen inc mod 5 < 2 counter drop
            }
        }
    """
    subprocess.run(["ip", "netns", "exec", "nb-netns-uut", "nft", "-f", "-"], input=rules, text=True, check=True)
    _out, err = campaign.communicate(timeout=60)
    assert campaign.returncode in (0, 1), err
    found = sorted(rows(results), key=lambda row: int(row["started_ns"]))
    assert found[0]["lost_frames"] == "0"
    assert found[-1]["lost_frames"] == "80"
    assert (verdict_of(found[-1]), found[-1]["unexplained_frames"]) == ("valid", "0")
    assert found[-1]["lost_at"] == "bridge (nft bridge outside forward rule 2)=80"


def test_stopping_by_any_signal_keeps_what_was_measured(results, start):
    command = ("run", "netns", "quick", "-o", results, *FEW, *settings(repetitions=4))
    before: dict[str, str] = {}
    for how in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        campaign = start(*command)
        least = len(before) + 2
        wait_for(lambda least=least: stored(results) >= least)
        campaign.send_signal(how)
        _, err = campaign.communicate(timeout=20)
        assert campaign.returncode == 128 + how
        assert f"netbench resume {results}" in err
        assert not list(Path("/run/netns").glob("nb-netns-*"))
        kept = _begun(results)
        assert before.items() <= kept.items()
        assert len(kept) >= least
        command, before = ("resume", results), kept
    assert netbench("resume", results).returncode in (0, 1)  # other work on the machine may make a trial invalid
    after = _begun(results)
    assert len(after) == len(rows(results)) == 12
    assert before.items() <= after.items()


def _begun(results):
    """When each trial that is stored was begun."""
    return {row["trial"]: row["started_ns"] for row in rows(results)}


def test_killed_at_random_moments_nothing_is_lost_or_measured_twice(results, start):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    moments = random.Random(seed)
    command = ("run", "netns", "quick", "-o", results, *FEW, *settings(repetitions=4))
    for _ in range(5):
        campaign = start(*command)
        time.sleep(moments.uniform(0.3, 2.5))
        campaign.kill()
        campaign.communicate(timeout=20)
        if (results / "manifest.json").exists():
            command = ("resume", results)
    done = netbench("clean") if not (results / "manifest.json").exists() else netbench("resume", results)
    assert done.returncode == 0, done.stderr
    if (results / "manifest.json").exists():
        found = rows(results)
        assert len(found) == 12
        assert len({row["trial"] for row in found}) == 12
        assert {row["sent_frames"] for row in found} == {str(FEW_FRAMES)}


def test_boots_are_warmed_up_and_so_is_the_one_that_goes_on_after_a_kill_and_a_clean_up(results, start):
    """On real traffic: at the highest load, stored apart, on each boot; and what is killed in between goes on."""
    more = settings(repetitions=2, loads="1000fps,2000fps", warm_up_trials=2)
    campaign = start("run", "netns", "quick", "-o", results, "--uut", "bridge", *FEW, *more)
    wait_for(lambda: '"warm-up-trial-stored"' in _events(results))
    campaign.kill()
    campaign.communicate(timeout=20)
    _clean_undoes_what_a_killed_run_left()
    done = netbench("resume", results)
    assert done.returncode == 0, done.stderr
    assert "warm-up trials, not part of any result: " in done.stdout
    found = rows(results)
    assert len(found) == len({row["trial"] for row in found}) == 2 * 2
    assert {row["warm_up_trials"] for row in found} == {"2"}
    assert {row["warm_up_trial"] for row in found} == {""}
    apart = list(csv.DictReader(io.StringIO(netbench("export", results, "--warm-up-trials").stdout)))
    assert {row["load"] for row in apart} == {"2000fps"}
    assert {row["sent_frames"] for row in apart} == {str(FEW_FRAMES)}
    by_boot: dict[str, list[str]] = {}
    for row in apart:
        by_boot.setdefault(row["lifetime"], []).append(row["warm_up_trial"])
    measured = {row["lifetime"] for row in found}
    assert measured <= by_boot.keys(), "what was killed may have had no trial yet"
    assert all(by_boot[boot] == ["1", "2"] for boot in measured)
    assert list((results / "captures").iterdir()) == []


def _clean_undoes_what_a_killed_run_left():
    assert Path("/run/netns/nb-netns-uut").exists()
    output = netbench("clean", "--dry-run").stdout
    assert "would be undone: ip netns add nb-netns-uut" in output
    assert Path("/run/netns/nb-netns-uut").exists()
    assert netbench("clean").returncode == 0
    assert netbench("clean").stdout == "nothing to clean up\n"


def _events(results):
    log = results / "events.jsonl"
    return log.read_text() if log.exists() else ""


@pytest.fixture
def small_disk(tmp_path):
    mount = tmp_path / "disk"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=9m", "nb-test", str(mount)], check=True)
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def test_a_capture_that_fills_the_disk_is_an_invalid_trial(small_disk):
    results = small_disk / "results"
    more = settings(loads="[60000fps, max]", duration="2500ms", retries=0, keep_captures="all")
    done = netbench("run", "netns", "quick", "-o", results, "--uut", "bridge", *FEW, *more)
    assert done.returncode == 1, done.stderr + done.stdout
    found = {row["load"]: row for row in rows(results)}
    assert [row["reasons"] for row in found.values()] == ["capture-disk-full"] * 2
    assert [(row["verdict"], row["received_frames"], row["lost_frames"]) for row in found.values()] == [
        ("invalid", "", "")
    ] * 2
    assert found["60000fps"]["sent_frames"] == "0", "it is known beforehand that there is no room"
    assert int(found["max"]["sent_frames"]) > 0


def test_a_full_disk_loses_no_finished_trial(small_disk, start):
    results = small_disk / "results"
    campaign = start("run", "netns", "quick", "-o", results, *SIX, "--uut", "bridge")
    wait_for(lambda: stored(results) >= 2)
    # It ends with the error that the disk is full.
    with (small_disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4096))
    _, err = campaign.communicate(timeout=60)
    assert campaign.returncode == 4, err
    assert "disk full" in err or "No space left" in err or "is the disk full" in err
    assert "Traceback" not in err
    (small_disk / "filler").unlink()
    before = {row["trial"] for row in rows(results)}
    assert len(before) >= 2
    netbench("resume", results)
    found = [row["trial"] for row in rows(results)]
    assert len(found) == len(set(found)) == 6
    assert before <= set(found)
