"""Changes made and undone as a whole, on changes that only say what was asked of them."""

from dataclasses import dataclass
from typing import Any

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from netbench.errors import TestbedError
from netbench.hosts.base import Completed
from netbench.linux.changes import AddNamespace, Change, Machine, MovePort, OffloadsOff, stored
from netbench.linux.journal import Journal
from netbench.linux.transaction import Transaction
from tests.unit.fakes import FakeHost

LOG: list[str] = []


@dataclass(frozen=True, slots=True)
class Noted(Change):
    """A change that notes what is asked of it, and fails as told."""

    name: str
    found: str = ""
    where: str | None = None
    make_error: str = ""
    undo_error: str = ""

    @property
    def inside(self):
        return self.where

    @property
    def command(self):
        return f"do {self.name}"

    def as_found(self, machine):
        LOG.append(f"look {self.name}")
        return Noted(self.name, "as it was", self.where, self.make_error, self.undo_error)

    def make(self, machine):
        LOG.append(f"make {self.name}")
        _raise(self.make_error)

    def undo(self, machine):
        assert self.found == "as it was"
        LOG.append(f"undo {self.name}")
        _raise(self.undo_error)


def _raise(what):
    match what:
        case "netlink":
            raise NetlinkError(16, "Device or resource busy")
        case "os":
            raise PermissionError(1, "Operation not permitted")
        case "testbed":
            raise TestbedError("no such interface")
        case "bug":
            raise ZeroDivisionError


class NoNetlink:
    """Nothing to close, and no interface to be found."""

    def index(self, netns, interface):
        raise TestbedError(f"there is no interface {interface}")

    def has(self, netns, interface):
        return netns == "nb-lab-tester" and interface == "eth1"

    def forget(self, netns):
        LOG.append(f"forget {netns}")


def machine(**hosts) -> Machine:
    netlink: Any = NoNetlink()
    return Machine(netlink, {name.replace("_", "-"): host for name, host in hosts.items()})


@pytest.fixture
def journal(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "_KINDS", (*stored._KINDS, Noted))
    LOG.clear()
    journal = Journal.create("lab", tmp_path)
    yield journal
    journal.close()


@pytest.fixture
def transaction(journal):
    return Transaction(journal, machine())


def test_each_change_is_looked_at_recorded_and_made_before_the_next(transaction, journal, monkeypatch):
    record = journal.record

    def note_and_record(change):
        LOG.append(f"record {change.name}")
        return record(change)

    monkeypatch.setattr(journal, "record", note_and_record)
    transaction.make([Noted("a"), Noted("b")])
    assert LOG == ["look a", "record a", "make a", "look b", "record b", "make b"]
    assert [change.found for _, change in journal.pending] == ["as it was", "as it was"]


def test_changes_are_undone_last_first(transaction, journal):
    transaction.make([Noted("a"), Noted("b"), Noted("c")])
    LOG.clear()
    assert transaction.undo() == []
    assert LOG == ["undo c", "undo b", "undo a"]
    assert journal.pending == []
    assert transaction.undo() == []
    assert LOG == ["undo c", "undo b", "undo a"]


@pytest.mark.parametrize(
    ("error", "says"),
    [("netlink", "`do b` failed: Device or resource busy"), ("os", "`do b` failed: Operation not permitted")],
)
def test_a_change_that_fails_is_undone_as_well(transaction, error, says):
    """It may have been made in part."""
    with pytest.raises(TestbedError) as failed:
        transaction.make([Noted("a"), Noted("b", make_error=error), Noted("c")])
    assert str(failed.value) == says
    assert "look c" not in LOG
    transaction.undo()
    assert LOG[-2:] == ["undo b", "undo a"]


@pytest.mark.parametrize("error", ["testbed", "bug"])
def test_whatever_it_fails_with(transaction, error):
    with pytest.raises((TestbedError, ZeroDivisionError)):
        transaction.make([Noted("a", make_error=error)])
    transaction.undo()
    assert LOG[-1] == "undo a"


def test_what_was_never_recorded_is_not_made(transaction, journal, monkeypatch):
    def full(change):
        raise TestbedError("the journal cannot be written")

    monkeypatch.setattr(journal, "record", full)
    with pytest.raises(TestbedError, match="the journal cannot be written"):
        transaction.make([Noted("a")])
    assert LOG == ["look a"]


def test_undoing_back_to_a_point(transaction):
    transaction.make([Noted("a"), Noted("b")])
    point = transaction.point
    transaction.make([Noted("c"), Noted("d")])
    LOG.clear()
    transaction.undo(to=point)
    assert LOG == ["undo d", "undo c"]
    assert transaction.point == point == 2
    transaction.undo()
    assert LOG == ["undo d", "undo c", "undo b", "undo a"]


@pytest.mark.parametrize(
    ("error", "why"),
    [("netlink", "Device or resource busy"), ("os", "Operation not permitted"), ("testbed", "no such interface")],
)
def test_what_cannot_be_undone_does_not_keep_the_rest_from_it(transaction, journal, error, why):
    transaction.make([Noted("a"), Noted("b", undo_error=error), Noted("c")])
    assert transaction.undo() == [f"`do b` could not be undone: {why}"]
    assert LOG[-3:] == ["undo c", "undo b", "undo a"]
    assert [change.name for _, change in journal.pending] == ["b"]


def test_what_lives_in_a_namespace_goes_with_it(journal):
    """One by one, that would take as long as making it did."""
    for change in (AddNamespace("nb-gone"), Noted("in it", "as it was", "nb-gone"), Noted("not", "as it was", "nb-x")):
        journal.record(change)
    assert Transaction(journal, machine()).undo() == []
    assert LOG == ["undo not", "forget nb-gone"]
    assert journal.pending == []


def test_what_lives_in_a_namespace_that_stays_is_undone(journal):
    journal.record(AddNamespace("nb-stays"))
    transaction = Transaction(journal, machine())
    point = transaction.point
    journal.record(Noted("in it", "as it was", "nb-stays"))
    transaction.undo(to=point)
    assert LOG == ["undo in it"]


def test_what_was_changed_on_a_lent_port_does_not_go_with_the_namespace(journal):
    """The port leaves the namespace before that is removed, and takes its offloads along."""
    host = FakeHost({"ethtool": Completed((), 0, "", "")})
    for change in (
        AddNamespace("nb-lab-tester"),
        MovePort("eth1", "nb-lab-tester"),
        OffloadsOff("nb-lab-tester", "eth1", old=("gro", "tso")),
    ):
        journal.record(change)
    assert Transaction(journal, machine(nb_lab_tester=host)).undo() == []
    assert host.commands[-1] == ("ethtool", "-K", "eth1", "gro", "on", "tso", "on")
