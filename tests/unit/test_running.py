"""Other netbench runs on this machine."""

import subprocess
import sys
import time
from contextlib import ExitStack
from threading import Thread

import pytest

from netbench.errors import MissingError
from netbench.hosts.clock import wait_until
from netbench.linux.locks import measuring, other_measurements, when_alone
from netbench.linux.recovery_journal import clean

OTHER_PROCESS = """
import sys, time
from pathlib import Path
from netbench.linux.locks import measuring
with measuring("other", Path(sys.argv[1])):
    print("there", flush=True)
    time.sleep(60)
"""


def topologies(presence):
    return [other.topology for other in presence.overlapping()]


def test_each_of_several_knows_of_all_that_measured_at_the_same_time(tmp_path):
    with measuring("first", tmp_path) as first:
        assert first.overlapping() == []
        with measuring("second", tmp_path) as second:
            assert (topologies(first), topologies(second)) == (["second"], ["first"])
            assert first.overlapping()[0].since == second.overlapping()[0].since, "both since the second began"
        with measuring("third", tmp_path) as third:
            assert (topologies(first), topologies(third)) == (["second", "third"], ["first"])
    assert list((tmp_path / "running").iterdir()) == []


def test_a_killed_one_does_not_count(tmp_path):
    command = [sys.executable, "-c", OTHER_PROCESS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "there\n"
        with measuring("x", tmp_path) as while_it_is_there:
            assert topologies(while_it_is_there) == ["other"]
            assert [run.topology for run in other_measurements(tmp_path)] == ["other"]
        other.kill()
    assert len(list((tmp_path / "running").iterdir())) == 1, "it could not clean up"
    assert other_measurements(tmp_path) == []
    with when_alone(lambda other: pytest.fail(other.topology), tmp_path), measuring("x", tmp_path) as later:
        assert later.overlapping() == []


def test_a_killed_one_leaves_nothing_that_clean_does_not_remove(tmp_path):
    with measuring("x", tmp_path):
        (there,) = (tmp_path / "running").iterdir()
        killed = there.with_name("killed.json")
        killed.write_text(there.read_text())
        assert clean(dry_run=True, directory=tmp_path) == []
        assert killed.exists()
        assert clean(directory=tmp_path) == []
        assert list(there.parent.iterdir()) == [there]


def test_who_waits_begins_when_all_others_have_ended_and_one_at_a_time(tmp_path):
    output, crowd = [], []

    def wait_and_measure():
        with ExitStack() as stack:
            with when_alone(lambda other: output.append(other.topology), tmp_path):
                presence = stack.enter_context(measuring("waiter", tmp_path))
            time.sleep(0.7)
            crowd.append(presence.overlapping())

    with measuring("first", tmp_path) as first:
        waiters = [Thread(target=wait_and_measure, daemon=True) for _ in range(2)]
        for waiter in waiters:
            waiter.start()
        assert wait_until(lambda: len(output) == 2, 20), "both look before the first has ended"
        time.sleep(0.7)
        assert first.overlapping() == []
    for waiter in waiters:
        waiter.join(20)
    assert crowd == [[], []]
    assert output.count("first") == 2, "each is reported once"


def test_where_nothing_can_be_written(tmp_path):
    (tmp_path / "running").write_text("in the way")
    with pytest.raises(MissingError, match="cannot be written: File exists"), measuring("x", tmp_path):
        pytest.fail("it cannot be found by others")
