"""Which CPUs guests run on, on machines with and without hardware threads."""

import pytest

from netbench.errors import MissingError, UsageError
from netbench.model.topology_specs import NeighbourSpec, UutSpec
from netbench.testbed import cpus
from netbench.testbed.cpus import placed, require_cpus, siblings_here, victim_cpus

# Four cores of two threads each, numbered as by most firmware: all first threads, then all second ones.
THREADS = range(8)


def core_of_two(cpu: int) -> frozenset[int]:
    return frozenset({cpu % 4, cpu % 4 + 4})


def alone(cpu: int) -> frozenset[int]:
    return frozenset({cpu})


@pytest.mark.parametrize(
    ("placement", "victim", "usable", "siblings", "found"),
    [
        (None, (2,), THREADS, core_of_two, ()),
        (None, (), (0, 1), alone, ()),
        ("same-cpu", (2,), THREADS, core_of_two, (2,)),
        ("same-cpu", (1, 2), THREADS, core_of_two, (1, 2)),
        ("sibling", (2,), THREADS, core_of_two, (6,)),
        ("sibling", (2, 3), THREADS, core_of_two, (6, 7)),
        ("sibling", (2, 6, 3), THREADS, core_of_two, (7,)),
        ("other-core", (2,), THREADS, core_of_two, (0, 1, 3, 4, 5, 7)),
        ("other-core", (2, 5), THREADS, core_of_two, (0, 3, 4, 7)),
        ("other-core", (2,), (2, 6, 7), core_of_two, (7,)),
        ("other-core", (0,), (0, 1), alone, (1,)),
        ((1, 0), (0,), (0, 1), alone, (1, 0)),
    ],
)
def test_a_neighbour_is_placed_from_where_the_victim_is(placement, victim, usable, siblings, found):
    assert placed(placement, victim, usable, siblings) == found


@pytest.mark.parametrize(
    ("placement", "victim", "usable", "siblings", "message"),
    [
        ("sibling", (0,), (0, 1), alone, "of the CPUs to use (0, 1) none is a hardware sibling of the victim's (0)"),
        ("sibling", (2,), (0, 2, 7), core_of_two, "of the CPUs to use (0, 2, 7) none is a hardware sibling"),
        ("sibling", (2, 6), THREADS, core_of_two, "none is a hardware sibling of the victim's (2, 6)"),
        ("other-core", (0,), (0,), alone, "of the CPUs to use (0) none is a CPU on another core than the victim's (0)"),
        ("other-core", (2,), (2, 6), core_of_two, "none is a CPU on another core than the victim's (2)"),
    ],
)
def test_a_place_that_the_machine_has_not(placement, victim, usable, siblings, message):
    with pytest.raises(MissingError) as missing:
        placed(placement, victim, usable, siblings)
    assert str(missing.value).startswith(f"placement: {placement}: ")
    assert message in str(missing.value)


def test_cpus_by_number_have_to_be_there():
    with pytest.raises(UsageError, match="^placement: there is no CPU 7 to use; there are 0, 1$"):
        placed((1, 7), (0,), (0, 1), alone)
    require_cpus((), (), "no process")


def neighbour(placement=None) -> NeighbourSpec:
    return NeighbourSpec(name="second", placement=placement)


@pytest.mark.parametrize(
    ("given", "placement", "found"),
    [
        ({}, None, ()),
        ({}, (1,), ()),
        ({}, "same-cpu", (5,)),
        ({}, "other-core", (5,)),
        ({"host_cpus": [3, 4]}, None, (3, 4)),
        ({"host_cpus": [3]}, "sibling", (3,)),
        ({"pin": {"vcpus": [[5], [3, 4]], "io": [2]}}, None, (2, 3, 4, 5)),
        ({"pin": {"io": [4]}}, "sibling", (4,)),
        ({"pin": {}}, "sibling", (5,)),
        ({"pin": {"io": [4]}, "host_cpus": [3]}, "sibling", (3,)),
    ],
)
def test_the_victim_is_where_it_was_reported_to_be_or_has_a_place_where_others_refer_to_it(given, placement, found):
    spec = UutSpec.model_validate({"name": "u", "kind": "qemu", **given})
    assert victim_cpus(spec, [neighbour(), neighbour(placement)], (2, 3, 4, 5)) == found


def test_the_victims_cpus_have_to_be_there_too():
    spec = UutSpec(name="u", kind="raw", host_cpus=(0, 9))
    with pytest.raises(UsageError, match="^host_cpus: there is no CPU 9 to use; there are 0, 1$"):
        victim_cpus(spec, [], (0, 1))


def test_siblings_are_those_that_the_kernel_names(tmp_path, monkeypatch):
    monkeypatch.setattr(cpus, "_SYSFS", tmp_path)
    (tmp_path / "cpu3/topology").mkdir(parents=True)
    (tmp_path / "cpu3/topology/thread_siblings_list").write_text("3,11\n")
    assert siblings_here(3) == {3, 11}
    assert siblings_here(4) == {4}, "a kernel that does not tell"
