"""Campaigns on the shipped topology lab-vm: source, UUT and sink inside one VM, and failures of that VM."""

import json
import os
import signal
import sqlite3
import statistics
import time
from contextlib import closing
from pathlib import Path

import pytest

from netbench.generators.pktgen.parameters import PktGenOptions
from netbench.generators.pktgen.pktgen import PktGen
from netbench.hosts.local import LocalHost
from netbench.linux.locks import STATE_DIRECTORY
from tests.commands import netbench, rows, settings, verdict_of
from tests.netns.watching import events, stored, wait_for
from tests.vm.lab import frames_in

pytestmark = [pytest.mark.vm, pytest.mark.root]

PATIENT = settings(repetitions=1, retries=0, tolerance="100%", max_lateness="1min", generator="pktgen")
LONG = [*PATIENT, *settings(frame_sizes=64, loads="1000fps", repetitions=2, duration="1s"), "--uut", "bridge"]


def remarks(results: Path) -> list[str]:
    """The error messages of the sources."""
    with closing(sqlite3.connect(results / "campaign.sqlite")) as store:
        return [text for (text,) in store.execute("SELECT text FROM warnings WHERE kind = 'source-remark'")]


def test_a_campaign_inside_one_vm(results):
    done = netbench(
        "run",
        "lab-vm",
        "quick",
        "-o",
        results,
        *PATIENT,
        "--uut",
        "route",
        *settings(generator="auto", frame_sizes="64,1518", loads="333fps,7777fps", duration="500ms"),
        *settings(keep_captures="all"),
    )
    assert done.returncode == 0, done.stderr
    assert not [text for text in remarks(results) if "afpacket" in text]
    found = rows(results)
    assert len(found) == 4
    assert {row["source"] for row in found} == {"pktgen"}
    (tester,) = json.loads((results / "manifest.json").read_text())["tester"]
    assert all(tester["hosts"]["source"]["kernel"] in row["source_details"] for row in found)
    assert tester["hosts"]["source"]["machine"] == "lab"
    deviations = []
    for row in found:
        wanted = float(row["load"].removesuffix("fps"))
        frames = round(float(row["intended_fps"]) * 0.5)
        assert float(row["intended_fps"]) == 1e9 / round(1e9 / wanted)  # a whole number of nanoseconds apart
        deviations.append(abs(float(row["offered_fps"]) / float(row["intended_fps"]) - 1))
        assert (row["sent_frames"], row["received_frames"], row["lost_frames"]) == (f"{frames}", f"{frames}", "0")
        assert (verdict_of(row), row["unexplained_frames"], row["capture_dropped_frames"]) == ("valid", "0", "0")
        captured = frames_in(results / "captures" / f"trial-{int(row['trial']):06d}-s1.pcap")
        assert [frame.sequence for frame in captured] == list(range(1, frames + 1))  # pktgen counts from 1
        assert {frame.size for frame in captured} == {int(row["frame_size"])}
    assert statistics.median(deviations) <= 0.04, "a wrong rate is further off than an emulated CPU that is late"


def test_a_vm_that_is_killed_ends_the_campaign_which_goes_on_in_another(results, start):
    campaign = start("run", "lab-vm", "quick", "-o", results, *LONG)
    wait_for(lambda: stored(results) == 1, timeout_s=180)
    wait_for(lambda: [event["kind"] for event in events(results)].count("trial-started") == 2)
    time.sleep(0.5)
    os.kill(_vm_pid(), signal.SIGKILL)
    _, err = campaign.communicate(timeout=30)
    assert campaign.returncode == 4
    assert "guest lab: QEMU was killed by signal 9" in err
    assert f"netbench resume {results}" in err
    assert "Traceback" not in err
    (before,) = rows(results)
    assert not list((STATE_DIRECTORY / "vm").glob("*-lab"))
    assert netbench("resume", results).returncode == 0
    after = rows(results)
    assert before in after
    assert [(row["sent_frames"], row["received_frames"], verdict_of(row)) for row in after] == [
        ("1000", "1000", "valid")
    ] * 2


def test_ctrl_c_ends_the_vm_too(results, start):
    campaign = start("run", "lab-vm", "quick", "-o", results, *LONG)
    wait_for(lambda: any(event["kind"] == "trial-started" for event in events(results)), timeout_s=180)
    time.sleep(1.0)
    pid = _vm_pid()
    campaign.send_signal(signal.SIGINT)
    _, err = campaign.communicate(timeout=20)
    assert campaign.returncode == 130
    assert f"netbench resume {results}" in err
    assert not Path(f"/proc/{pid}").exists()
    assert not list((STATE_DIRECTORY / "vm").glob("*-lab"))
    assert netbench("clean").stdout == "nothing to clean up\n"


def test_without_its_image_nothing_is_begun(results, tmp_path):
    done = netbench("run", "lab-vm", "quick", "-o", results, env={**os.environ, "NETBENCH_CACHE": str(tmp_path)})
    assert done.returncode == 3
    assert "the guest image 'micro' is not built" in done.stderr
    assert "netbench image build" in done.stderr
    assert not results.exists()


def test_auto_uses_afpacket_without_pktgen_and_reports_it(results):
    if not PktGen(PktGenOptions()).unsupported_reason(LocalHost("here", "nbt")):
        pytest.skip("this machine's own kernel has pktgen")
    small = settings(generator="auto", frame_sizes=64, loads="5000fps", duration="100ms")
    done = netbench("run", "netns", "quick", "-o", results, *PATIENT, *small, "--uut", "bridge")
    assert done.returncode == 0, done.stderr
    assert remarks(results)[0] == (
        "afpacket sends from nb-tx1 of host source: the kernel of host source has no pktgen: "
        "neither loaded nor loadable"
    )
    assert [row["received_frames"] for row in rows(results)] == ["500"]


def _vm_pid() -> int:
    (directory,) = (STATE_DIRECTORY / "vm").glob("*-lab")
    return int((directory / "pid").read_text())
