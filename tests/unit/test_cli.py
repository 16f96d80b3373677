"""The command line: exit codes, one message for each mistake, and never a traceback."""

import csv
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from importlib.metadata import version
from textwrap import dedent

import pytest

from netbench.campaign import runner as campaign
from netbench.config.document import yaml_value
from netbench.errors import ExitCode, MissingError, NotUndoneError, TestbedError, UsageError
from netbench.linux.recovery_journal import Cleaned
from netbench.model.frame_size import FrameSize
from netbench.model.packet_description import parse_packet
from netbench.model.shipped_packets import SHIPPED_PACKETS
from netbench.model.verdict import CampaignWarning, Reason, ReasonKind, WarningKind
from netbench.results.directory import ResultDirectory
from netbench.results.store import Store
from netbench.signals import Stopped
from netbench.testbed import preconditions
from tests.commands import settings
from tests.unit.capture_files import pcap
from tests.unit.inputs import profile, topology
from tests.unit.results_factory import MANIFEST, stream_counts, trial

COMMANDS = [
    *("run", "search", "resume", "report", "compare", "export", "analyze", "selftest"),
    *("doctor", "list", "clean", "image", "hosts", "init", "schema"),
]


@pytest.fixture
def results(tmp_path):
    """A campaign of two trials, complete."""
    directory = ResultDirectory(tmp_path / "results")
    manifest = {**MANIFEST, "topology": "lab", "profile": "one", "planned_trials": 2, "uuts": ["bridge"]}
    with (
        directory.created(topology(), profile(repetitions=2), {**manifest, "scenarios": ["dedicated"]}),
        closing(Store.open(directory.store)) as store,
    ):
        for number, received in enumerate((1000, 930)):
            store.add(trial(stream_counts(received=received), uut="bridge", repetition=number + 1, index=number))
    return directory


def test_every_command_explains_itself(command):
    code, out, _ = command("--help")
    listed = out.partition("Commands:\n")[2]
    assert code == 0
    assert [line.split()[0] for line in listed.splitlines() if line.startswith("  ") and line[2] != " "] == COMMANDS
    for name in COMMANDS:
        code, out, err = command(name, "--help")
        assert (code, err) == (0, "")
        assert out.startswith("Usage:")
        assert "--help" in out
        assert command(name, "-h") == (code, out, err)


def test_the_list_of_commands_reports_what_each_is_in_80_columns(command):
    for group in ((), ("image",), ("hosts",)):
        listed = command(*group, "-h")[1].partition("Commands:\n")[2].splitlines()
        assert max(map(len, listed)) <= 80
        assert not [line for line in listed if "..." in line]


def test_its_version(command):
    assert command("--version") == (0, f"netbench {version('netbench')}\n", "")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("run netns-vmm-", ["netns-vmm-3"]),
        ("run netns schlosser2011-sh", ["schlosser2011-short"]),
        ("run netns quick --uut ", ["bridge", "route", "drops-7-of-100"]),
        ("search netns --uut dr", ["drops-7-of-100"]),
        ("run netns-vmm interference --scenario network-1", ["network-10", "network-110", "network-150"]),
        ("run netns quick --scenario ", ["dedicated"]),
        ("run no-such quick --uut ", []),
        ("run netns ./", []),
        ("export --format ", ["csv", "json", "parquet"]),
        ("rep", ["report"]),
    ],
)
def test_what_a_shell_completes(command, monkeypatch, tmp_path, words, found):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("_NETBENCH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"netbench {words}")
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ") + 1))
    code, out, err = command()
    assert (code, out.split(), err) == (0, found, "")


def test_files_of_ones_own_are_completed_beside_the_shipped_ones(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "netns-mine.yaml").write_text("uuts: [{name: mine}]\n")
    monkeypatch.setenv("_NETBENCH_COMPLETE", "complete_bash")
    for words, completion in (("run netns-m", "netns-mine.yaml"), ("run netns-mine.yaml quick --uut ", "mine")):
        monkeypatch.setenv("COMP_WORDS", f"netbench {words}")
        monkeypatch.setenv("COMP_CWORD", str(words.count(" ") + 1))
        assert command()[:2] == (0, f"{completion}\n")


@pytest.mark.parametrize(
    ("option", "pattern", "chosen"),
    [
        ("--uut", "*e", ["bridge", "route"]),
        ("--uut", "drops-7-of-100", ["drops-7-of-100"]),
        ("--scenario", "ded*", ["bridge", "route", "drops-7-of-100"]),
    ],
)
def test_uuts_and_scenarios_are_chosen_by_name_or_pattern(command, option, pattern, chosen):
    code, out, _ = command("run", "netns", "quick", "--dry-run", option, pattern)
    assert code == 0
    assert [line.split()[2] for line in out.splitlines() if line.startswith("# UUT ")] == chosen


def test_what_there_is_as_json(command):
    code, out, _ = command("list", "--json")
    listed = json.loads(out)
    assert code == 0
    assert list(listed) == ["topologies", "profiles", "packets", "generators", "sinks", "schedules", "tools", "uuts"]
    [netns] = [entry for entry in listed["topologies"] if entry["name"] == "netns"]
    assert netns["uuts"] == ["bridge", "route", "drops-7-of-100"]
    [demo] = [entry for entry in listed["profiles"] if entry["name"] == "demo"]
    assert demo["scenarios"] == ["dedicated", "cpu-heavy"]
    assert {"name": "1k-flows", "flows": 1000}.items() <= listed["packets"][7].items()
    assert {uut["name"] for uut in listed["uuts"]} >= {"raw", "qemu"}
    assert json.loads(command("list", "packets", "--json")[1]) == {"packets": listed["packets"]}
    assert all(uut["origin"].startswith("netbench ") for uut in listed["uuts"])


def test_listed_packets_have_the_text_of_a_profile(command):
    code, out, _ = command("list", "packets")
    entries = re.findall(r"^  (\S+) .*\n((?:    .*(?:\n|$))+)", out, re.MULTILINE)
    assert code == 0
    assert [name for name, _ in entries] == list(SHIPPED_PACKETS)
    for name, text in entries:
        packet = parse_packet({"name": name, **yaml_value(dedent(text))})
        assert packet == parse_packet(name)
        assert command("list", name)[1].endswith(text.rstrip() + "\n")
    assert command("list", "sinks")[1].startswith("sinks:\n  auto ")


WRONG = [
    ((), "Usage:"),
    (("measure",), "No such command 'measure'"),
    (("run",), "Missing argument"),
    (("run", "netns"), "Missing argument"),
    (("run", "netns", "quick", "--no-such-option"), "No such option: --no-such-option"),
    (("run", "netns", "quick", "--seed", "x"), "'--seed': must be a whole number"),
    (
        ("run", "nets", "quick"),
        "nets: no such topology: neither a file nor one of the shipped ones; did you mean netns?",
    ),
    (
        ("run", "netns", "quik"),
        "quik: no such profile: neither a file nor one of the shipped ones; did you mean quick?",
    ),
    (("run", "quick", "netns"), "quick: is a profile, but a topology is needed here"),
    (("run", "netns", "netns-3"), "netns-3: is a topology, but a profile is needed here"),
    (
        ("run", "netns", "quick", "--uut", "x"),
        "--uut: topology netns has no UUT 'x'; it has bridge, route, drops-7-of-100",
    ),
    (
        ("run", "netns", "quick", "--uut", "rout"),
        "--uut: topology netns has no UUT 'rout'; did you mean route? it has bridge, route",
    ),
    (("run", "netns", "quick", "--uut", "vm-*"), "topology netns has no UUT 'vm-*'; it has bridge"),
    (("run", "netns", "response-time"), "that has (netns-vmm), or measure without one: `--set scenarios=dedicated`"),
    (
        ("run", "padala2007", "padala2007", "--scenario", "dedicated"),
        "--scenario: profile padala2007 has no scenario 'dedicated'; it has shared-idle",
    ),
    (
        ("search", "netns", "slo"),
        "profile slo searches rates of a tool, and `netbench search` searches frame rates: use `netbench run netns "
        "slo`",
    ),
    (
        ("run", "netns", "bandwidth", "--set", "loads=100fps"),
        "loads: iperf3 does not support 100fps; supported: 10Mbit/s, max",
    ),
    (
        ("run", "netns-attachments", "quick", "--uut", "container-nat"),
        "NAT forwards connections only; use a profile with a tool, such as bandwidth",
    ),
    (("run", "netns", "quick", "--scenario", "x"), "--scenario: profile quick has no scenario 'x'; it has dedicated"),
    (
        ("run", "netns", "quick", "--scenario", "dedicate"),
        "profile quick has no scenario 'dedicate'; did you mean dedicated?",
    ),
    (("run", "netns", "quick", "--scenario", "ded"), "profile quick has no scenario 'ded'"),
    (
        ("run", "netns", "quick", "--set", "frame_sizes=63"),
        "--set frame_sizes=63: frame_sizes[0]: 63 is not allowed: a frame has at least 64 bytes, FCS included",
    ),
    (("run", "netns", "quick", "--seed", "-1"), "seed: -1 is not allowed"),
    (
        ("search", "netns", "ndr", "--loss", "0%", "--loss", "0.5"),
        "--loss 0.5: not a percentage; did you mean 0.5% (a ratio of 0.005) or 50% (a ratio of 0.5)?",
    ),
    (("search", "netns", "ndr", "--loss", "some"), "--loss some: not a percentage; write for example 0.5%"),
    (("resume",), "Missing argument"),
    (
        ("resume", "/no/such/place"),
        "/no/such/place: is no result directory of `netbench run`: manifest.json: No such file or directory",
    ),
    (("report", "/no/such/place"), "/no/such/place: is no result directory of `netbench run`"),
    (("export", "/no/such/place"), "/no/such/place: is no result directory of `netbench run`"),
    (("export", "/no/such/place", "--format", "xml"), "'--format': 'xml' is not one of 'csv', 'json', 'parquet'"),
    (("search", "netns", "--method", "mlr"), "'loss-rate', 'sweep'; did you mean mlrsearch?"),
    (("analyze", "/no/such/file"), "/no/such/file"),
    (("analyze", "/"), "/: not a regular file"),
    (("analyze", "/dev/null"), "/dev/null"),
    (("selftest", "--frames", "99"), "'--frames': must be at least 100"),
    (("selftest", "nets"), "nets: no such topology"),
    (("selftest", "--generator", "trafgen"), "'trafgen' is no kind of generator; there are afpacket, auto, pktgen"),
    (("doctor", "nets"), "nets: no such topology"),
    (("list", "netns"), "list netns: names no kind and no packet; names are topologies, profiles, packets,"),
    (("list", "vlann"), "list vlann: names no kind and no packet; did you mean vlan?"),
    (("list", "packets", "--uuts"), "list packets --uuts: name a kind, or --uuts"),
    (("schema",), "Missing argument 'WHAT'. Choose from:\n    topology,\n    profile"),
    (("schema", "result"), "'WHAT': 'result' is not one of 'topology', 'profile'"),
    (("clean", "now"), "unexpected extra argument"),
]


@pytest.mark.parametrize(
    ("arguments", "expected_message"), WRONG, ids=[" ".join(words) or "nothing" for words, _ in WRONG]
)
def test_a_wrong_command_line(command, arguments, expected_message):
    code, out, err = command(*arguments)
    assert (code, out) == (ExitCode.USAGE, "")
    assert expected_message in err
    assert err.startswith("Usage: ") or (err.startswith("netbench: ") and err.count("\n") == 1)


def test_results_that_are_there_are_not_overwritten(command, results):
    code, _, err = command("run", "netns", "quick", "-o", results.path)
    assert code == ExitCode.USAGE
    assert err == (
        f"netbench: {results.path} already exists; go on with `netbench resume {results.path}`, "
        "or name another with -o\n"
    )


@pytest.mark.parametrize("arguments", [("run", "netns", "quick", "-o", "results"), ("selftest",), ("clean",)])
def test_without_root_it_reports_so_and_leaves_nothing(command, monkeypatch, tmp_path, arguments):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.chdir(tmp_path)
    code, out, err = command(*arguments)
    assert (code, out) == (ExitCode.MISSING, "")
    assert err == (
        "netbench: netbench makes network namespaces and sends raw frames: run it as root (sudo netbench …)\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_needs_no_root_and_touches_nothing(command, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.chdir(tmp_path)
    chosen = settings(repetitions=1, order="sequential", frame_sizes="64,65", loads="10fps,max")
    code, out, err = command("run", "netns", "quick", "--dry-run", "--uut", "drops-7-of-100", *chosen, "--seed", "7")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "# netns × quick: 4 trials, seed 7"
    assert "  ip netns add nb-netns-uut" in lines
    assert [line for line in lines if line.startswith("# UUT ")] == ["# UUT drops-7-of-100 (reference)"]
    for inside in (
        "numgen inc mod 100 < 7 counter name nb-s1 drop",
        "tcpdump -i nb-rx1",
        "netbench.generators.afpacket.afpacket_worker nb-tx1",
    ):
        assert inside in out
    trials = lines[lines.index("# trials, in order") + 1 : -1]
    assert [" ".join(line.split()) for line in trials] == [
        "drops-7-of-100",
        "0 dedicated s1 64 B 10fps repetition 1",
        "1 dedicated s1 64 B max repetition 1",
        "2 dedicated s1 65 B 10fps repetition 1",
        "3 dedicated s1 65 B max repetition 1",
    ]
    assert lines[-1].startswith("# expected total time: 0:00:0")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("topology", "uut", "server", "client"),
    [
        ("lab-kvm", "kvm", "nginx -p", "-source python3 -I -S -c SOURCE '{"),
        ("netns", "route", "unshare --pid --fork --kill-child nginx -p", "-m netbench.tools.tcp_client '{"),
    ],
)
def test_a_dry_run_shows_clients_and_servers_as_their_machines_run_them(command, topology, uut, server, client):
    chosen = settings(scenarios="dedicated", repetitions=1, loads="50/s")
    code, out, err = command("run", topology, "response-time", "--dry-run", "--uut", uut, *chosen)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith("# servers and taps")]
    assert lines[at] == f"# servers and taps, in each trial on {uut}: tool http"
    assert lines[at + 1].startswith(f"  guest: {server}")
    assert [place for place in ("client", "guest") if f"-{place}.pcap " in lines[at + 2]] == ["client"]
    assert "-guest.pcap " in lines[at + 3]
    assert lines[at + 4] == f"# clients, in each trial on {uut}: tool http at 50/s"
    assert client in lines[at + 5]


def test_a_dry_run_shows_equal_commands_once(command):
    """With NAT, taps and the server's address differ. The client's commands are equal."""
    chosen = [*settings(loads="max,1Mbit/s"), "--set", "tool={kind: iperf3, message_size: [64, 128]}"]
    uuts = ("--uut", "raw", "--uut", "container-bridge", "--uut", "container-nat")
    code, out, err = command("run", "netns-attachments", "bandwidth", "--dry-run", *uuts, *chosen)
    assert (code, err) == (0, "")
    sizes = "tool iperf3 message_size=64", "tool iperf3 message_size=128"
    assert [line for line in out.splitlines() if line.startswith(("# servers", "# clients"))] == [
        "# servers and taps, in each trial on raw, container-bridge: every workload",
        "# servers and taps, in each trial on container-nat: every workload",
        *(f"# clients, in each trial on every UUT: {size} at {load}" for size in sizes for load in ("max", "1Mbit/s")),
    ]


def test_a_dry_run_states_the_objective_of_a_search(command):
    code, out, err = command("run", "netns", "slo", "--dry-run", "--uut", "route")
    assert (code, err) == (0, "")
    assert (
        "# search: highest rate with p99 below 10 ms, at most 0 % errors and throughput that follows the rate; " in out
    )
    assert "to that of a closed-loop trial; width 5 %" in out


def raising(error):
    def walk(*arguments, **more):
        raise error

    return walk


@pytest.mark.parametrize(
    ("error", "code"),
    [(UsageError("wrong"), 2), (MissingError("not here"), 3), (TestbedError("broken"), 4)],
)
def test_an_expected_error_is_one_line_and_its_code(command, monkeypatch, tmp_path, error, code):
    monkeypatch.setattr(campaign, "start", raising(error))
    assert command("run", "netns", "quick", "-o", tmp_path / "x") == (code, "", f"netbench: {error}\n")


@pytest.mark.parametrize(("name", "given"), [("run", 3), ("resume", 3), ("compare", 3), ("list", 0)])
def test_a_limit_below_which_linear_algebra_never_ends_is_refused(command, monkeypatch, name, given):
    monkeypatch.setattr(resource, "getrlimit", lambda which: {resource.RLIMIT_AS: (300 << 20, -1)}[which])
    code, _, err = command(name)
    assert code == given
    assert given == 0 or "(ulimit -v) is 307,200 KiB: raise it" in err


GO_ON = "all results so far are kept; go on with: netbench resume"


@pytest.mark.parametrize(
    ("error", "code", "expected_message"),
    [
        (TestbedError("nb-tx1 is gone"), 4, f"netbench: nb-tx1 is gone\n{GO_ON}"),
        (Stopped(signal.SIGINT), 130, f"stopped; {GO_ON}"),
        (Stopped(signal.SIGTERM), 143, f"stopped; {GO_ON}"),
        (Stopped(signal.SIGHUP), 129, f"stopped; {GO_ON}"),
    ],
)
def test_a_campaign_that_was_broken_off_shows_what_there_is_and_how_to_go_on(
    command, monkeypatch, results, error, code, expected_message
):
    monkeypatch.setattr(campaign, "resume", raising(error))
    given, out, err = command("resume", results.path)
    assert (given, err) == (code, f"{expected_message} {results.path}\n")
    assert "2 valid" in out
    assert out.endswith(f"report of the trials so far: {results.report}\n")
    assert results.report.read_text().startswith("<!")


def test_a_result_directory_that_was_removed_meanwhile_is_a_broken_campaign(command, monkeypatch, results):
    monkeypatch.setattr(campaign, "resume", lambda *arguments, **more: shutil.rmtree(results.path))
    code, _, err = command("resume", results.path)
    assert code == ExitCode.BROKEN
    assert err.startswith(f"netbench: {results.path}: was removed or damaged during the campaign")
    with pytest.raises(TestbedError, match="was removed"):
        results.write_manifest(MANIFEST)


def test_a_campaign_stopped_while_it_calibrates_prints_a_sentence_instead_of_an_empty_table(
    command, monkeypatch, tmp_path
):
    directory = ResultDirectory(tmp_path / "results")
    manifest = {**MANIFEST, "topology": "lab", "profile": "one", "uuts": ["bridge"], "scenarios": ["dedicated"]}
    first = trial(stream_counts(), uut="bridge")
    with (
        directory.created(topology(), profile(repetitions=2), {**manifest, "planned_trials": 2}),
        closing(Store.open(directory.store)) as store,
    ):
        store.add(replace(first, spec=replace(first.spec, finds_maximum=True)))
    monkeypatch.setattr(campaign, "resume", raising(Stopped(signal.SIGINT)))
    code, out, _ = command("resume", directory.path)
    assert code == ExitCode.SIGINT
    assert "no table of results yet: only 1 calibration trial so far\n" in out
    assert "Throughput" not in out


def test_stopped_again_while_it_writes_the_report_it_still_reports_how_to_go_on(command, monkeypatch, results):
    monkeypatch.setattr(campaign, "resume", raising(Stopped(signal.SIGINT)))
    monkeypatch.setattr("netbench.cli.progress.write_report", raising(KeyboardInterrupt()))
    code, _, err = command("resume", results.path)
    assert (code, err) == (ExitCode.SIGINT, f"stopped; {GO_ON} {results.path}\n")


def test_where_no_report_can_be_written_what_stopped_it_is_still_reported(command, monkeypatch, results):
    monkeypatch.setattr(campaign, "resume", raising(TestbedError("the disk is full")))
    monkeypatch.setattr("netbench.cli.progress.write_report", raising(TestbedError("no space left")))
    code, out, err = command("resume", results.path)
    assert (code, err) == (4, f"netbench: the disk is full\n{GO_ON} {results.path}\n")
    assert out.endswith("no report could be written: no space left\n")


def test_stopped_before_there_was_anything_to_go_on_with(command, monkeypatch, tmp_path):
    monkeypatch.setattr(campaign, "start", raising(Stopped(signal.SIGINT)))
    assert command("run", "netns", "quick", "-o", tmp_path / "x") == (ExitCode.SIGINT, "", "")


@pytest.mark.parametrize("another", [Stopped(signal.SIGINT), KeyboardInterrupt(), TestbedError("x"), ValueError("odd")])
def test_what_was_not_undone_is_reported_also_where_another_error_replaces_it(command, monkeypatch, results, another):
    def fail(*_: object, **__: object) -> None:
        try:
            raise NotUndoneError("not everything could be undone: ip netns add nb-x")
        finally:
            raise another

    monkeypatch.setattr(campaign, "resume", fail)
    code, _, err = command("resume", results.path)
    assert code == 4
    assert err.count("not everything could be undone: ip netns add nb-x") == 1


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_selftest_that_was_stopped(command, monkeypatch, signum, code):
    monkeypatch.setattr("netbench.selftest.suite.run_selftest", raising(Stopped(signum)))
    assert command("selftest") == (code, "", "")


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (False, 1)])
def test_a_selftest_that_ended(command, monkeypatch, passed, code):
    monkeypatch.setattr("netbench.selftest.suite.run_selftest", lambda presenter, wanted, output: passed)
    assert command("selftest")[0] == code


def test_an_unexpected_error_is_reported_without_a_traceback(command, monkeypatch):
    monkeypatch.setattr("netbench.cli.listing.listing", raising(ValueError("odd")))
    monkeypatch.delenv("NETBENCH_DEBUG", raising=False)
    assert command("list") == (
        ExitCode.BROKEN,
        "",
        "netbench: unexpected ValueError: odd\nplease report it; NETBENCH_DEBUG=1 shows where it arose\n",
    )
    monkeypatch.setenv("NETBENCH_DEBUG", "1")
    with pytest.raises(ValueError, match="odd"):
        command("list")


def test_an_unexpected_error_of_a_plugin_names_its_code(command, monkeypatch):
    code: dict[str, object] = {"__name__": "lab_plugin.tap"}
    exec("def listing(width, kind):\n    raise AttributeError('none')", code)
    monkeypatch.setattr("netbench.cli.listing.listing", code["listing"])
    monkeypatch.setattr("netbench.config.plugins.other_packages", lambda: frozenset({"lab_plugin"}))
    monkeypatch.delenv("NETBENCH_DEBUG", raising=False)
    assert command("list") == (
        ExitCode.BROKEN,
        "",
        "netbench: unexpected AttributeError in the plug-in lab_plugin.tap, line 2: none\n"
        "please report it to the authors of the plug-in; NETBENCH_DEBUG=1 shows where it arose\n",
    )


def test_ctrl_c_during_any_command(command, monkeypatch):
    monkeypatch.setattr("netbench.cli.listing.listing", raising(KeyboardInterrupt()))
    assert command("list")[0] == ExitCode.SIGINT


@pytest.fixture
def resumed(command, monkeypatch, results):
    """Return the output of `netbench resume` once `more` is among the results."""

    def resume(*more, options=()):
        store = Store.open(results.store)
        for item in more:
            store.keep_warnings([item]) if isinstance(item, CampaignWarning) else store.add(item)
        store.close()
        monkeypatch.setattr(campaign, "resume", lambda *arguments, wait: None)
        return command("resume", results.path, *options)

    return resume


def test_packets_that_were_left_out_are_printed_with_the_reason(resumed):
    text = "UUT route is not measured with the packets vlan, dscp6: Dot1Q: a router forwards no tags"
    _, out, _ = resumed(CampaignWarning(WarningKind.PACKET_REFUSED, text))
    assert f"{text}\n" in out


def test_a_campaign_that_is_complete_is_shown_and_reported(resumed, results):
    code, out, err = resumed(CampaignWarning(WarningKind.SHORT_TRIALS, "too short"))
    assert (code, err) == (0, "")
    assert f"report: {results.report}\n" in out
    assert "short-trials" in out
    assert results.report.read_text().startswith("<!")


@pytest.mark.parametrize(("options", "expected"), [((), ExitCode.DONE), (("--strict",), ExitCode.INVALID_RESULTS)])
def test_trials_that_stayed_invalid_are_printed_and_strict_shows_them_in_the_exit_code(
    resumed, results, options, expected
):
    reasons = (Reason(ReasonKind.CAPTURE_FAILED, "s1", ""),)
    invalid = trial(stream_counts(received=None), uut="bridge", repetition=3, index=2, reasons=reasons)
    code, out, err = resumed(invalid, options=options)
    assert (code, err) == (expected, "1 of 3 trials stayed invalid; the report has the reasons\n")
    assert f"report: {results.report}\n" in out


def test_a_schema_for_editors(command, tmp_path):
    code, out, _ = command("schema", "profile")
    assert code == 0
    assert json.loads(out)["title"] == "netbench profile"
    assert command("schema", "topology", "-o", tmp_path / "x.json") == (0, "", "")
    assert json.loads((tmp_path / "x.json").read_text())["title"] == "netbench topology"


def test_a_start(command, tmp_path):
    code, out, err = command("init", "netns", "-o", tmp_path)
    assert (code, err) == (0, "")
    wanted = (tmp_path / "topology.yaml", tmp_path / "profile.yaml")
    assert f"netbench run {wanted[0]} {wanted[1]}\n" in out
    assert command("run", *wanted, "--dry-run")[0] == 0


def test_exporting(command, results, tmp_path):
    code, out, err = command("export", results.path)
    assert (code, err) == (0, "")
    assert [line.split(",")[9] for line in out.splitlines()] == ["received_frames", "1000", "930"]
    assert command("export", results.path, "--format", "json", "-o", tmp_path / "x.json") == (0, "", "")
    assert json.loads((tmp_path / "x.json").read_text())


@pytest.mark.parametrize("option", ["--size", "--sizes"])
def test_rows_of_some_frame_sizes_and_uuts_are_exported(command, results, option):
    with closing(Store.open(results.store)) as store:
        for number, size in enumerate((FrameSize.of(128), FrameSize.of(128).with_packet("vlan")), start=2):
            store.add(trial(stream_counts(received=number), uut="bridge", frame_size=size, index=number))

    def received(*arguments):
        return [
            row["received_frames"]
            for row in csv.DictReader(command("export", results.path, *arguments)[1].splitlines())
        ]

    assert received(option, "128") == ["2", "3"]
    assert received(option, "128 vlan") == ["3"]
    assert received(option, "*vlan,64") == ["1000", "930", "3"]
    assert received(option, "64", option, "* vlan") == ["1000", "930", "3"]
    assert received("--series", "bridge", option, "64") == ["1000", "930"]
    assert command("export", results.path, "--aggregate", option, "128 vlan")[1].count("\n") == 2
    for wrong, message in (
        (option, "--size 500: no campaign has it; there are 128, 128 vlan, 64"),
        ("--series", "--series 500"),
    ):
        code, out, err = command("export", results.path, wrong, "500")
        assert (code, out) == (ExitCode.USAGE, "")
        assert message in err


def test_figures_leave_no_place_for_what_the_numbers_are_reported_as(command, results, tmp_path):
    code, out, err = command(
        *("export", results.path, "--figures", "svg", "--format", "csv", "--aggregate", "-o", tmp_path / "x")
    )
    assert (code, out) == (ExitCode.USAGE, "")
    assert "leave out --format, --aggregate, or --figures and --tables" in err
    assert not (tmp_path / "x").exists()


def test_reporting_elsewhere(command, results, tmp_path):
    assert command("report", results.path, "-o", tmp_path / "x.html") == (0, f"report: {tmp_path / 'x.html'}\n", "")
    assert (tmp_path / "x.html").exists()
    assert not results.report.exists()


FOUND = Cleaned("lab-1", ("tcpdump -i nb-rx1",), ("ip netns add nb-a", "ip link set eth1 netns nb-a"), ())
FAILED = Cleaned("lab-1", (), (), ("`ip netns add nb-a` could not be undone: busy",))
DONE = """run lab-1
  {}ended: tcpdump -i nb-rx1
  {}undone: ip link set eth1 netns nb-a
  {}undone: ip netns add nb-a
"""


@pytest.mark.parametrize(
    ("dry", "found", "answer"),
    [
        (False, [FOUND], (0, DONE.replace("{}", ""), "")),
        (True, [FOUND], (0, DONE.replace("{}", "would be "), "")),
        (False, [FAILED], (4, "run lab-1\n", "  `ip netns add nb-a` could not be undone: busy\n")),
        (False, [], (0, "nothing to clean up\n", "")),
    ],
)
def test_cleaning_reports_what_it_did(command, monkeypatch, dry, found, answer):
    asked = []

    def clean(dry_run):
        asked.append(dry_run)
        return found

    monkeypatch.setattr("netbench.linux.recovery_journal.clean", clean)
    monkeypatch.setattr(preconditions, "require_root", lambda: None)
    assert command("clean", *(["--dry-run"] if dry else [])) == answer
    assert asked == [dry]


@pytest.mark.parametrize("arguments", [("run", "netns-3", "quick", "--dry-run"), ("--help",)])
def test_a_reader_who_has_gone_is_no_error(arguments):
    read_end, write_end = os.pipe()
    os.close(read_end)
    argv = [sys.executable, "-m", "netbench", *arguments]
    try:
        done = subprocess.run(argv, stdout=write_end, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_path_that_is_no_text_is_reported_anyway(tmp_path):
    argv = [sys.executable, "-m", "netbench", "run", os.fsdecode(os.fsencode(tmp_path) + b"/\xff.yaml"), "quick"]
    done = subprocess.run(argv, capture_output=True, timeout=60, check=False)
    assert done.returncode == 2
    assert b"cannot be read: No such file or directory" in done.stderr
    assert b"Traceback" not in done.stderr


def ran(arguments, heavy):
    """Run a command in another process; return its output, and which of the `heavy` modules it has loaded."""
    script = f"""
import sys
from netbench.cli import main as cli
sys.argv = ["netbench", *{arguments!r}]
try:
    cli.main()
finally:
    sys.stderr.write(" ".join(name for name in {heavy!r}.split() if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    return done.stdout, done.stderr


def test_help_comes_quickly():
    assert ran(["--help"], "numpy scipy jinja2 pyroute2 pydantic rich.progress")[1] == ""


@pytest.mark.parametrize("words", [["CAPTURE"], ["CAPTURE", "--json"], ["--json", "CAPTURE"]])
def test_analysis_of_a_capture_loads_nothing_that_it_does_not_need(tmp_path, words):
    """It would take longer than to count a million frames."""
    capture = tmp_path / "frames.pcap"
    capture.write_bytes(pcap([]))
    arguments = ["analyze", *(str(capture) if word == "CAPTURE" else word for word in words)]
    out, loaded = ran(arguments, "typer rich pydantic scipy pyroute2 subprocess netbench.hosts.base")
    assert loaded == ""
    assert ("frames" in json.loads(out)) if "--json" in words else f"{capture}\n" in out


@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["--jsn", "x.pcap"], 2), (["a", "b"], 2), ([], 2)])
def test_other_words_about_an_analysis_are_read_like_those_of_any_command(command, words, code):
    assert command("analyze", *words)[0] == code


@pytest.mark.parametrize("target", ["", "-o -", "-o /dev/stdout"])
def test_an_export_that_no_one_reads_or_that_cannot_be_written(results, target):
    export = f"set -o pipefail; {shlex.join([sys.executable, '-m', 'netbench', 'export', str(results.path)])} {target}"

    def done(where):
        return subprocess.run(["bash", "-c", f"{export} {where}"], capture_output=True, text=True, check=False)

    assert done("").stdout.startswith("uut,scenario,")
    assert (done("| true").returncode, done("| true").stderr) == (0, "")
    full = done(">/dev/full")
    assert full.returncode == 4
    assert full.stderr.count("\n") == 1
    assert "was not written: No space left on device" in full.stderr


def test_what_somebody_wrote_does_not_control_a_terminal(command, results, tmp_path):
    path = tmp_path / "\x1b[31mx"
    results.path.rename(path)
    assert command("report", path)[1] == f"report: {tmp_path}/\\x1b[31mx/report.html\n"
    assert "No such command '\\x1b[31m'" in command("\x1b[31m")[2]


def test_tools_are_listed_with_their_loads(command):
    code, out, err = command("list", "tools")
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    assert "Loads: 10Mbit/s, max. sockperf" in words
    assert {entry["loads"] for entry in json.loads(command("list", "tools", "--json")[1])["tools"]} >= {"100/s, max"}


def test_a_dry_run_names_a_skipped_uut_without_all_its_workloads(command):
    code, out, err = command("run", "netns", "bandwidth", "--dry-run", "--uut", "bridge", "--uut", "route")
    assert (code, err) == (0, "")
    assert (
        "# UUT bridge is skipped: it has no IP address with `forward: bridge`; use `forward: route`" in out.splitlines()
    )
    assert not [line for line in out.splitlines() if line.startswith(("# servers", "# clients")) and "bridge" in line]
