"""Names of NICs that netbench gives to interfaces of its own, and names that YAML would misread."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from netbench.cli.init import _quoted
from netbench.config.document import yaml_value
from netbench.errors import MissingError, TestbedError, UsageError
from netbench.linux.changes import AddNamespace
from netbench.linux.locks import state_is_written
from netbench.linux.proc import lacking_capabilities
from netbench.model.topology import topology_problems
from netbench.results.atomic import write_atomically
from netbench.results.directory import ResultDirectory
from tests.unit.inputs import topology
from tests.unit.test_machine import Guest


@pytest.mark.parametrize("name", ["br-s1", "ti-s1", "ve-s1", "bi-s1", "me-s1"])
def test_a_nic_that_is_called_as_an_interface_of_netbenchs_own_is_refused(name):
    given = topology(1)
    link = given.links[0]
    ends = [end if not end.startswith("uut/") else f"uut/{name}" for end in link.ends]
    changed = given.model_copy(update={"links": [link.model_copy(update={"ends": ends}), *given.links[1:]]})
    assert any(f"an interface named nb-{name} for" in problem for _, problem in topology_problems(changed))
    assert not any("an interface named" in problem for _, problem in topology_problems(given))


NAMES = ["eth0", "no", "on", "1e3", "0x10", "12:30", "null", "~", "a:b", "a#b", "-", "1_000", "e\u2003m", "[x", "'"]


@pytest.mark.parametrize("name", NAMES)
def test_yaml_reads_the_name_of_a_port_as_it_is(name):
    assert yaml_value(f"tx1: {_quoted(name)} # sends") == {"tx1": name}


@pytest.mark.parametrize(
    ("effective", "lacking"),
    [
        ("000001ffffffffff", []),
        ("0000000000000000", ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_ADMIN"]),
        ("000001ffffdfffff", ["CAP_SYS_ADMIN"]),
    ],
)
def test_capabilities_that_were_dropped_are_named(tmp_path, effective, lacking):
    (tmp_path / "status").write_text(f"Name:\tx\nCapEff:\t{effective}\n")
    assert lacking_capabilities(tmp_path / "status") == lacking


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("Operation not permitted", MissingError),
        ("mkdir /run/netns failed: Read-only file system", MissingError),
        ("Invalid argument", TestbedError),
    ],
)
def test_what_a_machine_refuses_is_missing(words, error):
    guest = Guest()
    guest.failing = {"netns add": words}
    with pytest.raises(error, match=words):
        guest.machine.make([AddNamespace("nb-x")])


@pytest.mark.parametrize(
    ("number", "hint"),
    [(errno.EROFS, "/run is read-only here"), (errno.EFBIG, r"raise the limit on the size of files \(ulimit -f\)")],
)
def test_the_reason_that_a_file_of_the_state_cannot_be_written_is_named(tmp_path, number, hint):
    with pytest.raises(MissingError, match=hint), state_is_written(tmp_path):
        raise OSError(number, os.strerror(number))


def test_a_directory_with_a_journal_of_sqlite_alone_can_be_used(tmp_path):
    (tmp_path / "campaign.sqlite-journal").touch()
    ResultDirectory(tmp_path).refuse_existing()


def test_resuming_is_only_proposed_where_it_can_be_done(tmp_path):
    (tmp_path / "notes").touch()
    with pytest.raises(UsageError) as refused:
        ResultDirectory(tmp_path).refuse_existing()
    assert "resume" not in str(refused.value)


def test_what_a_killed_writer_left_goes_with_the_next_one(tmp_path):
    left = tmp_path / f".report.html.{'a' * 16}.tmp"
    left.touch()
    with (tmp_path / f".report.html.{'b' * 16}.tmp").open("w") as living:
        fcntl.flock(living, fcntl.LOCK_EX)
        write_atomically(tmp_path / "report.html", b"x")
        assert {path.name for path in tmp_path.iterdir()} == {"report.html", Path(living.name).name}


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        ImportError("failed to map segment"),
        OSError(12, "no memory"),
        RuntimeError("can't start new thread"),
    ],
)
def test_too_little_memory_is_no_defect(command, monkeypatch, error):
    monkeypatch.setattr("netbench.cli.listing.listing", raising(error))
    code, _, err = command("list")
    assert code == 3
    assert "too little memory" in err
    assert "report it" not in err


def raising(error):
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail
