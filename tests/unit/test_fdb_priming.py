"""Trials begin after the learning frames that arrive at their sinks."""

from dataclasses import replace

import pytest

from netbench.model.paths import StreamId
from netbench.model.stream_paths import stream_paths
from netbench.trial.fdb_priming import Primed, await_learning_frames, prime_bridges
from tests.unit.fakes import FakeSetup, fake_ports

(PATH,) = stream_paths(fake_ports())
FORTH = replace(PATH, has_reverse=True)
BACK = replace(FORTH, name="back", source=PATH.sink, sink=PATH.source, reverse_of=StreamId("s1", 1))
NICS = PATH.source, PATH.sink


def primed_on(fake: FakeSetup) -> Primed:
    return prime_bridges(fake.setup, list(fake.setup.endpoints.values()))


def waited_s(fake: FakeSetup, primed: Primed) -> float:
    began_ns = fake.setup.clock.monotonic_ns()
    await_learning_frames(fake.setup, primed)
    return round((fake.setup.clock.monotonic_ns() - began_ns) / 1e9, 2)


def arrive(fake: FakeSetup, *nics) -> None:
    for nic in nics:
        fake.nics.grow(nic, rx=1)


def test_a_stream_alone_waits_for_none():
    fake = FakeSetup.on([PATH])
    primed = primed_on(fake)
    assert primed == Primed()
    assert waited_s(fake, primed) == 0
    assert [entry for entry in fake.log if entry.startswith("sink s1 learn")] != []


@pytest.mark.parametrize(("readings", "seconds"), [(0, 0), (10, 0.05), (100, 0.5)])
def test_both_directions_wait_until_the_last_one_has_arrived(readings, seconds):
    fake = FakeSetup.on([FORTH, BACK])
    primed = primed_on(fake)
    assert dict(primed.frames) == {nic.place: 1 for nic in NICS}
    arrive(fake, NICS[0])
    fake.nics.late = [*[lambda: None] * readings, lambda: arrive(fake, NICS[1])]
    assert waited_s(fake, primed) == seconds


def test_one_that_never_arrives_is_awaited_once():
    fake = FakeSetup.on([FORTH, BACK])
    primed = primed_on(fake)
    arrive(fake, NICS[0])
    assert waited_s(fake, primed) == pytest.approx(1, abs=0.02)
    primed = primed_on(fake)
    assert list(primed.frames) == [NICS[0].place], "the other one is reached, and may be late"
    arrive(fake, NICS[0])
    assert waited_s(fake, primed) == 0
    fake.setup.learning.forget()
    assert len(primed_on(fake).frames) == 2


def test_a_replaced_nic_is_not_awaited():
    fake = FakeSetup.on([FORTH, BACK])
    arrive(fake, *NICS)
    primed = primed_on(fake)
    for nic in NICS:
        fake.nics.grow(nic, rx=-1)
    assert waited_s(fake, primed) == 0
