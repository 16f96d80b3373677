"""The self-test passes on a sound machine, and reports the faults of a broken one."""

import json
import os
import re
import shutil
import stat
import subprocess
import time

import pytest

from tests.commands import HELD_UP, netbench, settings

pytestmark = pytest.mark.root

OTHERS = "CPUs left to the tester"
SPEED = ("pace", "ceiling", OTHERS)  # other processes on this machine may spoil these
ADDED = {"duplicates": "duplicate-frames", "foreign": "foreign-frames"}  # the kinds that belong to these checks
# A source cabled to its sink: a self-test checks and measures only these two.
WITHOUT_UUT = """
name: cable
hosts: {source: {}, sink: {}}
links:
  - {ends: [source/tx1, sink/rx1], rate: 1Gbit/s, receive: napi}
streams:
  - {name: s1, source: source/tx1, sink: sink/rx1}
uuts:
  - {name: none, kind: external}
"""


def checks(directory):
    """The checks of a record by name and UUT, and the record itself."""
    record = json.loads((directory / "selftest.json").read_text())
    return {(check["name"], check["uut"]): check for check in record["checks"]}, record


def wrong(found):
    """The checks that failed for a reason within the tester."""
    failed = [check for check in found.values() if check["passed"] is False and not check["name"].startswith(SPEED)]
    return [check for check in failed if not (kinds := output(check)) or kinds - HELD_UP - {ADDED.get(check["name"])}]


def output(check):
    """The kinds of reasons in the detail of a check, each of which is followed by its text."""
    return set(re.findall(r"(?:^|; )([a-z]+(?:-[a-z]+)*): ", check["detail"]))


def assert_drops_exact(found):
    """Assert that all drops of a known number are counted to the frame, where they are, and in each direction."""
    exact = [check for check in found.values() if check["name"].startswith("exact drop")]
    assert {check["error"] for check in exact} == {"0 frames"}
    alike = [check for check in exact if not check["name"].startswith("exact drop, another way back")]
    assert {check["truth"].partition(" lost at ")[2] for check in alike} == {
        *("ingress NIC", "bridge", "IP layer", "egress NIC")
    }
    (apart,) = (check for check in exact if check not in alike)
    assert apart["truth"] == "140 lost at IP layer, 32 lost at ingress NIC"
    assert apart["measured"] == "172 lost at IP layer, ingress NIC"


def test_every_known_truth_is_found_both_ways_and_the_ceilings_are_used_by_later_campaigns(tmp_path):
    done = netbench("selftest", "netns-both", "--frames", "2000", "-o", tmp_path / "self")
    found, record = checks(tmp_path / "self")
    assert done.returncode == (0 if record["passed"] else 1)
    assert not wrong(found), done.stdout
    assert None not in {check["passed"] for check in found.values()}, "nothing is skipped here"
    assert_drops_exact(found)
    recounts = {check["uut"]: check["measured"] for (name, _), check in found.items() if name == "recount by dpkt"}
    assert recounts == {
        "bridge-drops-7-of-100-forward": "3,720 received, 0 duplicates, 0 reordered",
        "duplicates-every-10th": "2,000 received, 200 duplicates, 0 reordered",
        "reorders-every-50th-by-7": "2,000 received, 0 duplicates, 39 reordered",
        "adds-foreign-frames": "2,000 received, 0 duplicates, 0 reordered",
    }
    (without,) = (check for check in found.values() if check["name"].startswith("sinks see everything: 2 at once"))
    assert without["passed"], "both over one link: source and sink at each end"
    assert "Self-test of netns-both" in (tmp_path / "self" / "selftest.html").read_text()

    lowest = min(point["fps"] for point in record["ceilings"])
    fast = f"loads=1000fps,{10 * lowest:.0f}fps"
    common = ("--uut", "bridge", "--set", "repetitions=1", "--set", "duration=50ms", "--set", "retries=0")
    netbench("run", "netns-both", "quick", "-o", tmp_path / "run", *common, "--set", fast, "--set", "frame_sizes=64")
    output = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    limited = {
        event["key"].split("/")[4]: any(reason.startswith("tester-limited") for reason in event["reasons"])
        for event in (line.get("details", line) for line in output)
        if "reasons" in event
    }
    assert limited == {"1000fps": False, f"{10 * lowest:.0f}fps": True}
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["selftest"] == record


def test_through_a_ring_the_ceilings_are_those_of_campaigns_with_the_same_source_and_sink(tmp_path):
    lab = tmp_path / "cable.yaml"
    lab.write_text(WITHOUT_UUT)
    kinds = ("--generator", "xdp", "--sink", "bpf")
    netbench("selftest", lab, "--frames", "500", "-o", tmp_path / "self", *kinds)
    found, record = checks(tmp_path / "self")
    (all_seen,) = [check for check in found.values() if check["name"].startswith("sinks see everything")]
    sent, by_ring = (int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", all_seen["truth"]))
    received = int(all_seen["measured"].partition(" ")[0].replace(",", ""))
    assert by_ring, "a source at the kernel's speed is faster than any sink"
    assert sent == received + by_ring
    assert record["ceilings"]
    common = settings(generator="xdp", sink="bpf", loads="1000fps", duration="50ms", repetitions=1, frame_sizes=64)
    netbench("run", lab, "quick", "-o", tmp_path / "run", *common)
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["selftest"] == record


# An iperf3 whose client reports twice the bytes. The system's Python runs it: no path with a space can follow #!.
LIAR = """#!/usr/bin/python3
import os, re, subprocess, sys
real = ["{iperf3}", *sys.argv[1:]]
if "--client" not in real:
    os.execv(real[0], real)
done = subprocess.run(real, capture_output=True, text=True)
sys.stdout.write(re.sub(r'("bytes":\\s*)(\\d+)', lambda found: found[1] + str(2 * int(found[2])), done.stdout))
sys.exit(done.returncode)
"""


def test_tools_are_checked_and_one_that_lies_is_found(tmp_path):
    liar = tmp_path / "bin" / "iperf3"
    liar.parent.mkdir()
    liar.write_text(LIAR.format(iperf3=shutil.which("iperf3")))
    liar.chmod(0o755)
    path = f"{liar.parent}:{os.environ['PATH']}"
    netbench(
        "selftest", "netns", "--frames", "500", "--tools", "-o", tmp_path / "self", env={**os.environ, "PATH": path}
    )
    found, _ = checks(tmp_path / "self")
    of_tools = {name: check for (name, _), check in found.items() if name.startswith("http client") or "wire" in name}
    assert len(of_tools) == 8
    lies = {name for name in of_tools if name.startswith("iperf3")}
    assert {name for name, check in of_tools.items() if check["passed"] is False} == lies, of_tools
    assert of_tools["http client: failing requests"]["measured"] == "20 status-500, 180 completed"


# netbench queries tcpdump by signals to its process group, which must not end the loop: tcpdump would stay stopped.
WRAPPER = """#!/bin/sh
me=$$
(
    trap '' USR1 USR2
    while sleep 0.03 && kill -STOP $me; do sleep 0.03; kill -CONT $me; done
) >/dev/null 2>&1 </dev/null &
exec {tcpdump} "$@"
"""


def spoil(netns: str, device: str, running) -> bool:
    """Drop one of 10⁹ frames at a NIC as soon as it exists; False if it never does. More would repeat all trials."""
    rule = (
        f'add table netdev evil; add chain netdev evil c {{ type filter hook ingress device "{device}" priority 0; }}; '
        "add rule netdev evil c numgen random mod 1000000000 < 1 drop"
    )
    while running.poll() is None:
        done = subprocess.run(["ip", "netns", "exec", netns, "nft", rule], capture_output=True, check=False)
        if done.returncode == 0:
            return True
        time.sleep(0.01)
    return False


def test_a_dishonest_machine_is_reported_what_is_wrong_with_it(tmp_path, start):
    """A rule behind the sink's tcpdump, a tcpdump that is stopped at times, and busy CPUs."""
    lab = tmp_path / "cable.yaml"
    lab.write_text(WITHOUT_UUT)
    wrapper = tmp_path / "bin" / "tcpdump"
    wrapper.parent.mkdir()
    wrapper.write_text(WRAPPER.format(tcpdump="/usr/bin/tcpdump"))
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    environment = {**os.environ, "PATH": f"{wrapper.parent}:{os.environ['PATH']}"}
    burners = [subprocess.Popen(["nice", "sh", "-c", "while :; do :; done"]) for _ in range(os.cpu_count() or 1)]
    try:
        kinds = ("--generator", "afpacket", "--sink", "tcpdump")
        running = start("selftest", lab, "--frames", "500", "-o", tmp_path / "self", *kinds, env=environment)
        assert spoil("nb-cable-sink", "nb-rx1", running)
        out, err = running.communicate(timeout=200)  # the CPUs are busy
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    assert running.returncode == 1, out + err
    found, record = checks(tmp_path / "self")
    assert not record["passed"]
    details = {name: check["detail"] for (name, _), check in found.items() if check["passed"] is False}
    assert "nft netdev evil c rule" in details["no foreign filters"]
    assert "at the sink NIC sink/rx1" in details["no foreign filters"]
    assert "tcpdump was stopped" in details["tcpdump is left alone"]
    assert "other processes used" in details[OTHERS]
