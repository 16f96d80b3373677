"""The path of a stream as counting points, combined from the tester's own and those that a UUT declares."""

from dataclasses import replace

from netbench.model.points import PathSection, PointKind, whole_path
from netbench.model.stream_paths import stream_paths
from tests.unit.inputs import topology, topology_in_vm
from tests.unit.points import GUEST, THROUGH_GUEST, THROUGH_UUT

(PATH,) = stream_paths(topology())


def test_what_a_uut_declares_lies_between_its_nics():
    names = [point.name for point in THROUGH_GUEST]
    assert names[:4] == ["generator", "source NIC", "ingress NIC", "softnet backlog"]
    assert [name for name in names[4:-3] if name != "uut"] == [point.name for point in GUEST]
    assert names[-3:] == ["egress NIC", "sink NIC", "capture"]
    assert [point.order for point in THROUGH_GUEST] == list(range(len(names)))


def test_the_middle_of_a_uut_is_in_the_guest_behind_what_it_counts_on_the_way_in():
    names = [point.name for point in THROUGH_GUEST]
    assert names[names.index("uut") - 1] == "guest"
    assert [point.name for point in THROUGH_UUT][4:6] == ["uut", "egress NIC"]


def test_a_path_through_something_that_no_one_looks_into_has_no_nics_of_it():
    outside = whole_path(replace(PATH, ingress=None, egress=None), ())
    assert [point.name for point in outside] == [
        "generator",
        "source NIC",
        "softnet backlog",
        "uut",
        "sink NIC",
        "capture",
    ]


def test_the_backlog_is_that_of_the_machine_where_frames_enter():
    (path,) = stream_paths(topology_in_vm())
    (backlog,) = [point for point in whole_path(path, ()) if point.kind is PointKind.BACKLOG]
    assert backlog.place is not None
    assert backlog.place.machine == "lab"


def test_nics_are_met_in_the_direction_of_the_frames():
    nics = {point.name: (point.where, point.direction) for point in THROUGH_UUT if point.passing}
    assert nics == {
        "source NIC": (PathSection.SOURCE, "tx"),
        "ingress NIC": (PathSection.INGRESS, "rx"),
        "egress NIC": (PathSection.EGRESS, "tx"),
        "sink NIC": (PathSection.SINK, "rx"),
    }
