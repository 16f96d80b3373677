"""Workloads as profiles have them: lists of values, names, and what is refused."""

import pytest
from pydantic import ValidationError

from netbench.config.loading import load_profile
from netbench.config.plugins import profile_kinds
from netbench.config.shipped import PROFILES, find
from netbench.model.profile import Profile
from netbench.model.scenario import Serve, written
from netbench.model.units import Load
from netbench.model.workload import workload_of, workloads_of


def names(value):
    return [workload.name for workload in workloads_of(value)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("iperf3", ["iperf3"]),
        ({"kind": "iperf3", "name": "bulk"}, ["bulk"]),
        ({"kind": "iperf3", "message_size": 64}, ["iperf3"]),
        ({"kind": "iperf3", "message_size": [64, 1024]}, ["iperf3 message_size=64", "iperf3 message_size=1024"]),
        (
            {"kind": "http", "name": "web", "keep_alive": [True, False], "body_size": [1, 2]},
            [f"web keep_alive={alive} body_size={size}" for alive in ("true", "false") for size in (1, 2)],
        ),
        (["http", {"kind": "http", "name": "large", "body_size": 1 << 20}], ["http", "large"]),
        ({"kind": "http", "path": "through"}, ["http path=through"]),
        ({"kind": "http", "name": "web", "path": ["loopback"], "body_size": [1]}, ["web path=loopback body_size=1"]),
        ({"kind": "http", "path": "to-guest"}, ["http"]),
        (
            {"kind": "http", "path": ["to-guest", "loopback"], "body_size": [1, 2]},
            [
                "http body_size=1",
                "http body_size=2",
                "http path=loopback body_size=1",
                "http path=loopback body_size=2",
            ],
        ),
    ],
)
def test_each_combination_of_values_is_a_workload(value, expected):
    assert names(value) == expected


def test_a_workload_is_read_back_as_it_was_written():
    options = {"keep_alive": [True, False], "body_size": [1, 1 << 20], "path": ["to-guest", "between-guests"]}
    for workload in (*workloads_of({"kind": "http", **options}), *workloads_of({"kind": "http", "path": "through"})):
        assert workload_of(workload.written) == workload
        serve = Serve(workload, Load.parse("100/s"))
        assert written(serve) == {"serve": workload.written, "load": "100/s"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (7, "a tool is a kind"),
        ({"name": "x"}, "a tool is a kind"),
        ({"kind": "IPERF3"}, "no name of a tool"),
        ({"kind": "a/b"}, "no name of a tool"),
        ({"kind": "http", "name": "a/b"}, "letters, digits"),
        ({"kind": "http", "name": "a "}, "letters, digits"),
        ({"kind": "http", "name": "a" * 101}, "at most 100"),
        ({"kind": "iperf3", "congestion": ["a/b"]}, "letters, digits"),
        ({"kind": "iperf3", "name": "n" * 85, "message_size": [123456]}, "choose a shorter name"),
        ({"kind": "iperf3", "message_size": []}, "at least one"),
        ({"kind": "iperf3", "path": "trough"}, "path: 'trough' is unknown; did you mean through?"),
        ({"kind": "iperf3", "path": []}, "at least one"),
        ({"kind": "iperf3", "path": True}, "path: True is unknown"),
        ({"kind": "http", "path": ["to-guest", "to-guest"]}, "path: to-guest is listed twice"),
        ({"kind": "http", "keep_alive": [True, True]}, "keep_alive: true is listed twice"),
        (["http", {"kind": "http", "path": "to-guest"}], "two tools are called 'http'"),
        ({"kind": "iperf3", "message_size": [[1]]}, "a text, a number"),
        ({"kind": "iperf3", "message_size": {"a": 1}}, "a text, a number"),
        ({"kind": "iperf3", "message_size": None}, "a text, a number"),
        (["http", "http"], "two tools are called 'http'"),
        ([["http"]], "a tool is a kind"),
    ],
)
def test_what_is_no_tool_is_refused(value, words):
    with pytest.raises(ValidationError if "two tools" not in words else ValueError, match=words):
        workloads_of(value)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"frame_sizes": [64]}, "either a tool"),
        ({"stop_when_saturated": 1}, "is for frames"),
        ({"warm_up_trials": 2}, "is for frames"),
        ({"packet": "vlan"}, "is for frames"),
        ({"flows": 2}, "counts UDP port pairs of frames; with a tool, use its option `parallel` or `clients`"),
        ({"maxima": {"kind": "loads"}}, "no maximum of a tool"),
    ],
)
def test_keys_of_frames_are_refused_beside_a_tool(keys, words):
    with pytest.raises(ValidationError, match=words):
        Profile.model_validate({"name": "p", "tool": "http", "loads": ["100/s"], **keys})


def test_a_profile_of_frames_has_no_rate_of_requests():
    with pytest.raises(ValidationError, match="100/s is a rate of a tool's requests"):
        Profile.model_validate({"name": "p", "frame_sizes": [64], "loads": ["100/s"]})


def test_a_neighbour_serves_one_workload():
    with pytest.raises(ValueError, match="one tool with one value"):
        workload_of({"kind": "iperf3", "message_size": [1, 2]})


@pytest.mark.parametrize("item", ["0", "tcp"])
def test_settings_change_an_option_of_a_tool(item):
    profile = load_profile(find(PROFILES, "bandwidth"), profile_kinds(), [f"tool.{item}.message_size=[64, 96]"])
    assert {work.option("message_size") for work in profile.tool if work.option("direction")} == {64, 96}
