"""The journal, and clean-up from it: any process can undo recorded changes once their owner is gone."""

import contextlib
import errno
import fcntl
import json
import os
import resource
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from netbench.errors import MissingError, TestbedError
from netbench.hosts.local import LocalHost, marked_processes
from netbench.linux import recovery_journal as journal
from netbench.linux.changes import AddNamespace, KeepPort, MovePort, SetSysctl
from netbench.linux.locks import append, lock_file, lock_testbed
from netbench.linux.recovery_journal import Cleaned, Journal, clean

# Undoing a change in a namespace that was never made touches nothing.
ONE, TWO, THREE = (AddNamespace(f"nb-never-made-{n}") for n in (1, 2, 3))
STUCK = SetSysctl(None, "kernel.ostype", "1", old="0")  # cannot be written

HOLD = """
import sys
from pathlib import Path
from netbench.linux.locks import lock_file
file = lock_file(Path(sys.argv[1]))
file.write(sys.argv[2])
file.flush()
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def held(path, content=""):
    """Another process that holds the lock on a file."""
    argv = [sys.executable, "-c", HOLD, str(path), content]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process.pid
        process.communicate()


def path_of(journal, directory):
    return directory / "journals" / f"{journal.run_id}.jsonl"


def abandoned(directory):
    return list(Journal.abandoned(directory))


def leave(directory, *changes) -> str:
    """Leave a journal as a killed run does; return its run ID."""
    journal = Journal.create("lab", directory)
    for change in changes:
        journal.record(change)
    journal.close()
    return journal.run_id


def test_what_was_not_undone_is_pending_for_anyone_who_comes_next(tmp_path):
    journal = Journal.create("lab", tmp_path)
    numbers = [journal.record(change) for change in (ONE, TWO, THREE)]
    journal.undone(numbers[1])
    assert journal.pending == [(0, ONE), (2, THREE)]
    assert abandoned(tmp_path) == [], "its owner is alive, and this very process"
    journal.close()
    (again,) = abandoned(tmp_path)
    assert (again.run_id, again.pending) == (journal.run_id, [(0, ONE), (2, THREE)])
    assert again.record(TWO) == 3, "no number is given twice"
    again.remove()
    assert list((tmp_path / "journals").iterdir()) == []


def test_a_record_is_in_the_file_when_record_returns(tmp_path):
    journal = Journal.create("lab", tmp_path)
    journal.record(ONE)
    lines = [json.loads(line) for line in path_of(journal, tmp_path).read_text().splitlines()]
    assert all(line.pop("crc32") for line in lines)
    assert lines == [
        {"topology": "lab", "pid": os.getpid(), "netns": Path("/proc/self/ns/net").stat().st_ino},
        {"seq": 0, "change": "AddNamespace", "name": "nb-never-made-1"},
    ]
    journal.close()


def test_a_journal_whose_owner_is_alive_is_left_alone(tmp_path):
    run_id = leave(tmp_path, ONE)
    other = leave(tmp_path, TWO)
    with held(tmp_path / "journals" / f"{run_id}.jsonl"):
        assert [journal.run_id for journal in abandoned(tmp_path)] == [other]
        assert [cleaned.run_id for cleaned in clean(directory=tmp_path)] == [other]
        assert (tmp_path / "journals" / f"{run_id}.jsonl").exists()
    assert [journal.run_id for journal in abandoned(tmp_path)] == [run_id]


@pytest.mark.parametrize("kept", [1, 20, 50])
def test_a_last_line_that_was_cut_was_never_acted_on(tmp_path, kept):
    """Changes that an interrupted clean-up has undone after it stay undone, too."""
    path = tmp_path / "journals" / f"{leave(tmp_path, ONE, TWO, THREE)}.jsonl"
    *whole, last = path.read_text().splitlines(keepends=True)
    path.write_text("".join(whole) + last[:kept])
    (journal,) = abandoned(tmp_path)
    assert journal.pending == [(0, ONE), (1, TWO)]
    journal.undone(1)
    journal.close()
    (again,) = abandoned(tmp_path)
    assert again.pending == [(0, ONE)]


def test_a_journal_cut_in_its_first_line_is_empty(tmp_path):
    run_id = leave(tmp_path)
    path = tmp_path / "journals" / f"{run_id}.jsonl"
    for content in ("", '{"topolo'):
        path.write_text(content)
        (journal,) = abandoned(tmp_path)
        assert journal.pending == []
        journal.close()


@pytest.mark.parametrize(
    "nonsense", ["garbage", "5", '{"seq": 2, "change": "Format"}', '{"seq": 2, "chan{"undone": 0}']
)
def test_a_journal_damaged_in_the_middle_is_undone_up_to_there_and_kept(tmp_path, nonsense):
    run_id = leave(tmp_path, ONE, TWO, THREE)
    path = tmp_path / "journals" / f"{run_id}.jsonl"
    header, one, two, three = path.read_text().splitlines()
    path.write_text("\n".join((header, one, two, nonsense, three, "")))
    (cleaned,) = clean(directory=tmp_path)
    assert cleaned.changes == (ONE.command, TWO.command)
    assert cleaned.failures == (f"{path}: line 4 is damaged; changes recorded from there on are not undone",)
    assert [left.suffix for left in path.parent.iterdir()] == [".damaged"]
    assert clean(directory=tmp_path) == []


@pytest.mark.parametrize("line", range(4))
def test_a_changed_byte_is_noticed_wherever_it_is(tmp_path, line):
    """It is not undone as another change: `nb-never-made-1` may have become the foreign `nb-never-made-9`."""
    path = tmp_path / "journals" / f"{leave(tmp_path, ONE, TWO, THREE)}.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for place, byte in enumerate(lines[line][:-1]):
        damaged = lines[line][:place] + bytes([byte ^ 1]) + lines[line][place + 1 :]
        path.write_bytes(b"".join((*lines[:line], damaged, *lines[line + 1 :])))
        (journal,) = abandoned(tmp_path)
        assert [change for _, change in journal.pending] == [ONE, TWO, THREE][: max(0, line - 1)]
        assert f"line {line + 1} is damaged" in journal.damage
        journal.close()


def test_a_namespace_stays_while_a_damaged_journal_may_hide_a_port_lent_to_it(tmp_path):
    changes = KeepPort("nbt-port", lent=True), ONE, MovePort("nbt-port", ONE.name, 7)
    path = tmp_path / "journals" / f"{leave(tmp_path, *changes)}.jsonl"
    path.write_text(path.read_text().replace("MovePort", "MovePart"))
    (journal,) = abandoned(tmp_path)
    assert [change for _, change in journal.pending] == [*changes[:2], MovePort("nbt-port", ONE.name)]


def test_what_was_changed_in_another_network_namespace_is_not_undone_in_this_one(tmp_path):
    run_id = leave(tmp_path, ONE)
    path = tmp_path / "journals" / f"{run_id}.jsonl"
    _, *changes = path.read_text().splitlines(keepends=True)
    path.write_text(json.dumps({"topology": "lab", "pid": 1, "netns": 1}) + "\n" + "".join(changes))
    assert clean(directory=tmp_path) == []
    assert path.exists()


def test_a_journal_does_not_grow_with_what_was_undone(tmp_path):
    journal = Journal.create("lab", tmp_path)
    first = journal.record(ONE)
    path = path_of(journal, tmp_path)
    for _ in range(2000):
        journal.undone(journal.record(TWO))
    assert path.stat().st_size < 100_000
    last = journal.record(THREE)
    assert abandoned(tmp_path) == [], "its owner has never let go of it"
    assert [left.name for left in path.parent.iterdir()] == [path.name]
    journal.close()
    (again,) = abandoned(tmp_path)
    assert again.pending == [(first, ONE), (last, THREE)]


def test_a_journal_that_another_was_put_in_place_of_belongs_to_that_one(tmp_path, monkeypatch):
    """It is opened before it is written anew, and locked afterwards."""
    path, new = tmp_path / "a", tmp_path / "b"
    path.touch()
    flock = fcntl.flock

    def replaced_first(file, how):
        new.touch()
        new.rename(path)
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", replaced_first)
    assert lock_file(path) is None


def test_a_state_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "journals").write_text("a file where the directory should be")
    with pytest.raises(MissingError, match=r"cannot be written: .*; netbench needs root for this"):
        Journal.create("lab", tmp_path)


def test_cleaning_undoes_and_forgets(tmp_path):
    assert clean(directory=tmp_path) == [], "there is no directory yet"
    run_id = leave(tmp_path, ONE, TWO)
    assert clean(directory=tmp_path) == [Cleaned(run_id, (), (ONE.command, TWO.command), ())]
    assert list((tmp_path / "journals").iterdir()) == []


def test_what_cannot_be_undone_is_reported_and_tried_again(tmp_path):
    run_id = leave(tmp_path, ONE, STUCK, TWO)
    (cleaned,) = clean(directory=tmp_path)
    (failure,) = cleaned.failures
    assert failure.startswith(
        f"`{STUCK.command}` could not be undone: host local: /proc/sys/kernel/ostype cannot be written"
    )
    (again,) = clean(directory=tmp_path)
    assert again == Cleaned(run_id, (), (STUCK.command,), (failure,))


@pytest.fixture
def child(tmp_path):
    """A process that bears the mark of an abandoned run."""
    run_id = leave(tmp_path, ONE, STUCK)
    process = LocalHost("local", run_id).spawn(["sleep", "60"])
    while not any(words.startswith("sleep") for _, words in marked_processes(run_id)):
        pass
    yield run_id, process
    process.kill()
    process.communicate()


def test_a_dry_run_touches_nothing(tmp_path, child):
    run_id, process = child
    before = (tmp_path / "journals" / f"{run_id}.jsonl").read_bytes()
    (cleaned,) = clean(dry_run=True, directory=tmp_path)
    assert (cleaned.run_id, cleaned.changes, cleaned.failures) == (run_id, (ONE.command, STUCK.command), ())
    assert cleaned.processes == ("sleep 60",)
    assert process.poll() is None
    assert (tmp_path / "journals" / f"{run_id}.jsonl").read_bytes() == before
    assert clean(dry_run=True, directory=tmp_path) == [cleaned]


def test_processes_of_an_abandoned_run_are_ended_and_no_others(tmp_path, child):
    run_id, process = child
    other = LocalHost("local", run_id + "0").spawn(["sleep", "60"])
    try:
        (cleaned,) = clean(directory=tmp_path)
        assert cleaned.processes == ("sleep 60",)
        assert process.wait(10) == -9
        assert other.poll() is None
    finally:
        other.kill()
        other.communicate()


def test_a_testbed_in_use_is_refused_with_the_process_that_uses_it(tmp_path):
    lock = tmp_path / "locks" / "netns:nb-lab-uut"
    with held(lock, "4711"), ExitStack() as stack, pytest.raises(MissingError) as refused:
        lock_testbed(stack, {"port:eth1", "netns:nb-lab-uut"}, tmp_path)
    assert str(refused.value) == (
        "the testbed is in use: netbench with process id 4711 has locked netns:nb-lab-uut; wait until it ends"
    )


def test_testbeds_that_share_nothing_are_locked_side_by_side(tmp_path):
    with ExitStack() as one, ExitStack() as other:
        lock_testbed(one, {"netns:a", "port:eth1"}, tmp_path)
        lock_testbed(other, {"netns:b", "port:../../x"}, tmp_path)
        with pytest.raises(MissingError, match=f"netbench with process id {os.getpid()} has locked port:eth1;"):
            lock_testbed(other, {"netns:c", "port:eth1"}, tmp_path)
    with ExitStack() as again:
        lock_testbed(again, {"netns:a", "netns:c", "port:eth1"}, tmp_path)
    names = {path.name for path in (tmp_path / "locks").iterdir()}
    assert names == {"netns:a", "netns:b", "netns:c", "port:eth1", "port:.._.._x"}


def test_what_cannot_be_written_whole_is_not_written_at_all(tmp_path):
    file = lock_file(tmp_path / "x")
    assert file
    append(file, "one\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len("one\ntw"), before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            append(file, "two\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    file.close()
    assert (tmp_path / "x").read_text() == "one\n"


def test_a_full_disk_leaves_no_journal_and_does_not_keep_changes_from_being_undone(tmp_path, monkeypatch):
    def full(file, text):
        raise OSError(errno.ENOSPC, "No space left on device")

    begun = Journal.create("lab", tmp_path)
    number = begun.record(AddNamespace("nb-x"))
    monkeypatch.setattr(journal, "append", full)
    with pytest.raises(TestbedError, match=r"cannot be written: No space left on device; make room there"):
        begun.record(AddNamespace("nb-y"))
    begun.undone(number)
    assert begun.pending == []
    begun.remove()
    with pytest.raises(TestbedError, match="No space left"):
        Journal.create("lab", tmp_path)
    assert list((tmp_path / "journals").iterdir()) == []


def test_without_proc_nothing_is_done(tmp_path, monkeypatch):
    leave(tmp_path, ONE)
    monkeypatch.setattr(journal, "_OWN_NAMESPACE", str(tmp_path / "net"))
    with pytest.raises(MissingError, match=r"net: No such file or directory; mount /proc"):
        clean(directory=tmp_path)
