"""Undo the changes of a run by its journal: at its own end, and after it was killed."""

from dataclasses import dataclass
from pathlib import Path

from netbench.hosts.local import LocalHost, end_marked_processes, marked_processes
from netbench.linux.journal import Journal
from netbench.linux.machine import Machine
from netbench.linux.running import forget_killed
from netbench.linux.state import STATE_DIRECTORY
from netbench.signals import shielded


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The processes ended and the changes undone (or, in a dry run, to be undone) for one abandoned run."""

    run_id: str
    processes: tuple[str, ...]
    changes: tuple[str, ...]
    failures: tuple[str, ...]


def clean(dry_run: bool = False, directory: Path = STATE_DIRECTORY) -> list[Cleaned]:
    """End the processes and undo the changes of every run whose owner is gone.

    With `dry_run` nothing is touched. MissingError when the state directory cannot be read or written.
    """
    cleaned = [_clean_one(journal, dry_run) for journal in Journal.abandoned(directory)]
    if not dry_run:
        forget_killed(directory)
    return cleaned


def _clean_one(journal: Journal, dry_run: bool) -> Cleaned:
    changes = tuple(change.command for _, change in journal.pending)
    if dry_run:
        processes = tuple(words for _, words in marked_processes(journal.run_id))
        journal.close()
        return Cleaned(journal.run_id, processes, changes, ())
    with shielded():
        ended, failures = take_back(journal, Machine(None, LocalHost("local", journal.run_id), record=journal))
    damage = (journal.damage,) if journal.damage else ()
    return Cleaned(journal.run_id, tuple(ended), changes, (*failures, *damage))


def take_back(journal: Journal, machine: Machine) -> tuple[list[str], list[str]]:
    """End the processes of a run and undo its changes; return the processes, and messages about failures.

    After a failure the journal stays: the next start, or `netbench clean`, tries again.
    """
    ended = end_marked_processes(journal.run_id)
    failures = machine.undo()
    if failures:
        journal.close()
    else:
        journal.remove()
    return ended, failures
