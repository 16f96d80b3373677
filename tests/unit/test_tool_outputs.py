"""Outputs of tools, as recorded and damaged: the same figures, or an error that names the fault."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from netbench.hosts.base import Completed
from netbench.hosts.local import LocalHost
from netbench.model.units import Load
from netbench.tools.base import Demand, FlowEnds, ToolError
from netbench.tools.connect import Connect, ConnectOptions
from netbench.tools.http import Http, HttpOptions
from netbench.tools.iperf3 import Iperf3, Iperf3Options
from netbench.tools.sealed_output import sealed
from netbench.tools.sockperf import Sockperf, SockperfOptions
from netbench.tools.sockperf_client import figures_in

RECORDED = Path(__file__).with_name("tool_outputs")
HERE = LocalHost("here", "outputs")
ENDS = FlowEnds("a", 1, HERE, HERE, "198.18.0.2", "/tmp")
MUTATIONS = 10_000
SEED = 20261128
SECONDS_ROUNDED = 2e-6
NS_ROUNDED, STEP = 2, 2**-10  # of a row of sockperf's log, and the width of a step of a distribution
WORDS = ("null", "-1", "1e999", "NaN", "[]", "{}", "true", '"', "9" * 25)


def recorded(name):
    return (RECORDED / name).read_text()


def result_of(tool, output, load="max", exit_code=0, stderr="", duration_s=3, warm_up_s=1.0):
    done = Completed(("tool",), exit_code, output, stderr)
    return tool.result(done, Demand(Load.parse(load), duration_s, warm_up_s), ENDS, "work")


def iperf3(**options):
    tool = Iperf3(Iperf3Options(**options))
    return lambda output: result_of(tool, output, duration_s=1, warm_up_s=0.5)


def http(output):
    return result_of(Http(HttpOptions()), output)


def connect(output):
    return result_of(Connect(ConnectOptions()), output)


def sockperf(output):
    """Both outputs of sockperf in one text; its client reads them before the tool does."""
    printed, rule, log = output.partition("\0")
    if not rule:
        raise ToolError("the test's own separator was damaged")
    try:
        figures = figures_in(printed, log)
    except ValueError as error:
        raise ToolError(str(error)) from error
    return result_of(Sockperf(SockperfOptions()), sealed(figures), "50/s")


PRINTED, LOG = recorded("sockperf.txt"), recorded("sockperf.log")
OF_SOCKPERF = f"{PRINTED}\0{LOG}"
OUTPUTS = {
    "iperf3-tcp": (iperf3(), recorded("iperf3-tcp.json")),
    "iperf3-tcp-down": (iperf3(direction="download"), recorded("iperf3-tcp-down.json")),
    "iperf3-udp": (iperf3(protocol="udp"), recorded("iperf3-udp.json")),
    "iperf3-udp-tail": (iperf3(protocol="udp"), recorded("iperf3-udp-tail.json")),
    "iperf3-udp-down": (iperf3(protocol="udp", direction="download"), recorded("iperf3-udp-down.json")),
    "sockperf": (sockperf, OF_SOCKPERF),
    "http": (http, recorded("http.json")),
    "connect": (connect, recorded("connect.json")),
}


def damaged(text, chance):
    """A text with one to three faults: of a character, of a digit, or of a part."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        at = chance.randrange(len(text))
        stop = min(len(text), at + chance.choice((1, 2, 8, 64, 512)))
        other = chance.randrange(len(text))
        match chance.randrange(8):
            case 0:
                text = text[:at] + chr(chance.choice((0, 10, 34, 44, 45, 48, 57, 125, 0xFF, 0xDCFF))) + text[at + 1 :]
            case 1 | 2:
                digits = [place for place, char in enumerate(text) if char.isdigit()]
                if digits:
                    at = chance.choice(digits)
                    text = text[:at] + str(chance.randrange(10)) + text[at + 1 :]
            case 3:
                text = text[:at] + text[stop:]
            case 4:
                text = text[:stop] + text[at:]
            case 5:
                text = text[:at]
            case 6:
                text = text[:at] + text[other : other + 64] + text[at:]
            case 7:
                text = text[:at] + chance.choice(WORDS) + text[at:]
        if not text:
            return text
    return text


def same(one, other):
    """Whether figures are the same within the rounding of an output. The version of a tool is no figure."""
    exact = [replace(result, tool="", duration_s=0, latencies=()) for result in (one, other)]
    counts = [[(times.kind, times.count) for times in result.latencies] for result in (one, other)]
    rounded = [[number for times in result.latencies for number in numbers_in(times)] for result in (one, other)]
    return (
        exact[0] == exact[1]
        and counts[0] == counts[1]
        and one.duration_s == pytest.approx(other.duration_s, rel=SECONDS_ROUNDED)
        and rounded[0] == pytest.approx(rounded[1], abs=NS_ROUNDED, rel=STEP)
    )


def numbers_in(times):
    """The extremes and the mean of times, and each of them in order, in ns."""
    each = [middle for middle, number in times.steps for _ in range(number)]
    return [times.smallest_ns, times.largest_ns, times.total_ns / max(1, times.count), *each]


@pytest.mark.parametrize("name", OUTPUTS)
def test_no_damaged_output_is_misread(name):
    read, output = OUTPUTS[name]
    truth, chance, refused = read(output), random.Random(SEED), 0
    for number in range(MUTATIONS):
        text = damaged(output, chance)
        try:
            figures = read(text)
        except ToolError:
            refused += 1
        else:
            assert same(figures, truth), f"mutation {number}"
    # Most of iperf3's output is not used, and most faults make JSON unreadable.
    assert MUTATIONS / 2 < refused < MUTATIONS


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("iperf3-tcp", {"to_server_bytes": 12_582_912, "run_to_server_bytes": 25_165_824, "retransmissions": 0}),
        ("iperf3-tcp-down", {"to_client_bytes": 6_291_456, "run_to_client_bytes": 12_582_912, "to_server_bytes": None}),
        ("iperf3-udp", {"started": 250, "completed": 225, "lost_datagrams": 25, "to_server_bytes": 225_000}),
        ("iperf3-udp-tail", {"started": 250, "completed": 163, "lost_datagrams": 87, "to_server_bytes": 163_000}),
        ("iperf3-udp-down", {"started": 250, "errors": {"lost": 25}, "to_client_bytes": 225_000}),
        ("sockperf", {"intended": 76, "started": 77, "completed": 69, "errors": {"lost": 8}, "to_client_bytes": 4416}),
        ("http", {"intended": 50, "completed": 50, "errors": {}}),
        ("connect", {"intended": 50, "completed": 50, "to_server_bytes": 0}),
    ],
)
def test_recorded_figures(name, figures):
    read, output = OUTPUTS[name]
    result = read(output)
    assert {key: getattr(result, key) for key in figures} == figures


def test_round_trips_are_those_of_the_log():
    (rtt,) = sockperf(OF_SOCKPERF).latencies
    assert (rtt.kind, rtt.count, rtt.smallest_ns, rtt.largest_ns) == ("rtt", 69, 14_431, 3_946_514)


SILENT = "sockperf: No messages were received from the server. Is the server down?\n"
EMPTY = "sockperf: No valid observations found. Try tune parameters: --time/--mps/--reply-every\n"


@pytest.mark.parametrize(
    ("printed", "log", "words"),
    [
        ("", "", "incomplete"),
        (SILENT, SILENT, "received no reply"),
        (EMPTY, EMPTY, "waits forever for a lost datagram"),
        (
            recorded("sockperf.txt"),
            recorded("sockperf.log").replace("ReceivedMessages=69", "ReceivedMessages=68"),
            "incom",
        ),
        (PRINTED, LOG.replace("2.420661547", "2.420661557"), "contradicts"),
        (PRINTED, LOG.replace("\n1, ", "\n2, "), "for message 1"),
        (
            recorded("sockperf.txt").replace("== version #", "== revision #"),
            recorded("sockperf.log"),
            "lacks its version",
        ),
    ],
)
def test_what_is_wrong_with_an_output_of_sockperf(printed, log, words):
    with pytest.raises(ToolError, match=words):
        sockperf(f"{printed}\0{log}")


def without(key, **more):
    """A sealed output of the client without a key, and with other values."""
    value = json.loads(recorded("http.json").splitlines()[0])
    value.pop(key, None)
    return sealed(value | more)


@pytest.mark.parametrize(
    ("output", "exit_code", "words"),
    [
        ("", 0, "printed a text without its checksum: nothing"),
        ("", 1, "ended with exit code 1 and printed: nothing"),
        (recorded("http.json"), 1, "ended with exit code 1"),
        (sealed([]), 0, "lacks"),
        (without("response"), 0, "lacks 'response'"),
        (without("", started=51), 0, "does not add up"),
        (without("", errors={"closed": 1}), 0, "does not add up"),
        (without("", errors={"timeout": 1}), 0, "contradict"),
        (without("", completed="50"), 0, "no whole number"),
        (without("", cpu_share=-1), 0, "no number that it can be"),
        (without("", server="a\nb"), 0, "no text that it can be"),
        (without("", response={"steps": [], "total_ns": 0, "smallest_ns": None, "largest_ns": None}), 0, "contradict"),
    ],
)
def test_what_is_wrong_with_an_output_of_the_client(output, exit_code, words):
    with pytest.raises(ToolError, match=words):
        result_of(Http(HttpOptions()), output, exit_code=exit_code)


def test_a_host_whose_python_lacks_a_module_has_a_remedy():
    stderr = "Traceback (most recent call last):\n  …\nModuleNotFoundError: No module named 'json'\n"
    with pytest.raises(ToolError, match="needs the module json, .* `netbench image build`"):
        result_of(Http(HttpOptions()), "", exit_code=1, stderr=stderr)


@pytest.mark.parametrize(
    ("longer_s", "of_flows_s", "words"),
    [
        (0, 0, ""),
        (0.00044, 0.00044, ""),  # iperf3 leaves out a last interval without data
        (0.0249, 0.0249, ""),
        (0.0252, 0.0252, "reports intervals of"),
        (-0.00002, -0.00002, "reports intervals of"),
        (0.00044, 0, "other times of its flows"),
    ],
)
def test_the_time_that_iperf3_reports_of_udp(longer_s, of_flows_s, words):
    output = json.loads(recorded("iperf3-udp.json"))
    total = output["end"]["sum_sent"]
    total["seconds"] += longer_s
    total["bits_per_second"] = 8 * total["bytes"] / total["seconds"]
    for flow in output["end"]["streams"]:
        flow["udp"]["seconds"] += of_flows_s
    read = iperf3(protocol="udp")
    if not words:
        assert read(json.dumps(output)).duration_s == pytest.approx(2.000163 + longer_s)
        return
    with pytest.raises(ToolError, match=words):
        read(json.dumps(output))


@pytest.mark.parametrize(
    ("gap_s", "before", "words"),
    [
        (0.0113, 3, ""),  # a report was late, and no data was sent until the next one
        (0.0113, 1, ""),  # during the warm-up
        (0.0272, 3, "an interval of .* after one until"),
        (-0.0113, 3, "an interval of .* after one until"),
    ],
)
def test_iperf3_may_leave_out_a_short_interval_without_data(gap_s, before, words):
    output, read = json.loads(recorded("iperf3-tcp.json")), iperf3()
    known = read(json.dumps(output))
    for interval in output["intervals"][before:]:
        for key in ("start", "end"):
            interval["sum"][key] += gap_s
    total = output["end"]["sum_sent"]
    total["seconds"] += gap_s
    total["bits_per_second"] = 8 * total["bytes"] / total["seconds"]
    if words:
        with pytest.raises(ToolError, match=words):
            read(json.dumps(output))
        return
    figures = read(json.dumps(output))
    assert figures.to_server_bytes == known.to_server_bytes
    assert figures.duration_s == pytest.approx(known.duration_s + (gap_s if before > 2 else 0))


@pytest.mark.parametrize(
    ("sent", "received", "dropped", "every", "is_right"),
    [
        (100, 100, 0, 1, True),
        (100, 95, 5, 1, True),
        (268, 134, 703, 1, False),
        (100, 10, 0, 10, True),
        (105, 11, 0, 10, True),
        (105, 7, 0, 10, False),
    ],
)
def test_counts_of_sockperf_add_up(sent, received, dropped, every, is_right):
    figures = figures_in(PRINTED, LOG)
    figures["rtt"] = {"steps": [(1000, received)], "total_ns": 1000 * received, "smallest_ns": 1000, "largest_ns": 1000}
    figures |= {"sent": sent, "received": received, "dropped": dropped}
    tool = Sockperf(SockperfOptions(reply_every=every))
    if is_right:
        assert result_of(tool, sealed(figures), "50/s").completed == received
    else:
        with pytest.raises(ToolError, match="too little CPU time"):
            result_of(tool, sealed(figures), "50/s")


def test_a_stopped_ping_pong_has_no_figures():
    figures = figures_in(PRINTED, LOG)
    with pytest.raises(ToolError, match=r"stopped after 1.52 s of 7 s.*use a load of messages"):
        result_of(Sockperf(SockperfOptions()), sealed(figures), "max", duration_s=10)
