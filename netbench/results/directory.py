"""A result directory: the store, the manifest, the events, and the topology and profile as resolved.

Each line of events.jsonl is an event of the campaign with its time.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ValidationError

from netbench.config.document import YAMLError, yaml_text, yaml_value
from netbench.config.wording import first_problem
from netbench.errors import TestbedError, UsageError
from netbench.linux.locks import lock_file
from netbench.model.campaign import CampaignResults
from netbench.model.documents import plain
from netbench.model.events import Event, TrialFinished, TrialStored
from netbench.model.foreign_text import encoded, json_of
from netbench.model.limits import LimitCause
from netbench.model.profile import Profile
from netbench.model.scenario import SHARED_IDLE
from netbench.model.topology import Topology
from netbench.model.trial import key_finds_maximum
from netbench.model.verdict import Reason, Verdict
from netbench.results.atomic import is_temporary, remove_temporary_files, write_atomically
from netbench.results.manifest import ENDED_SWEEPS, NOISE_FLOOR, SEARCHES, ManifestHead
from netbench.results.store import Store, Stored, StoredTrials
from netbench.results.store_file import is_empty
from netbench.statistics.limits import MaximumSearch, maximum_of

_STORED = f'"kind": "{TrialStored.kind}"'.encode()


def stored_trials(path: Path) -> int:
    """Return the number of stored trials by the log, which may lag behind by one; 0 without a log."""
    return sum(_STORED in line for line in _lines(path))


def attempts_without_result(path: Path) -> dict[str, list[tuple[Reason, ...]]]:
    """Return the reasons against invalid attempts at trials that a killed run has not stored, by key of the trial.

    The log does not record the streams of reasons.
    """
    attempts: dict[str, list[tuple[Reason, ...]]] = {}
    for line in _lines(path):
        try:
            event = json.loads(line)
            if event["kind"] == TrialStored.kind:
                attempts.pop(event["key"], None)
            elif event["kind"] == TrialFinished.kind and event["verdict"] == Verdict.INVALID.value:
                reasons = tuple(map(Reason.parse, event["reasons"]))
                attempts.setdefault(event["key"], []).append(reasons)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # damaged, or cut when killed
            continue
    return attempts


def _lines(path: Path) -> Iterator[bytes]:
    with suppress(OSError), path.open("rb") as file:
        yield from file


def _fields(value: Any) -> dict[str, object]:  # noqa: ANN401 - any dataclass
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _plain(value: object) -> object:
    """Return the stored form of a limit, the fields of any other dataclass, or else the text of a value."""
    if isinstance(value, LimitCause):
        return value.stored
    return _fields(value) if is_dataclass(value) else str(value)


class EventLog:
    """Appends each event at once, with its time (CLOCK_REALTIME); a killed run leaves at most a cut last line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def on(self, event: Event) -> None:
        """Append the event; TestbedError if the disk is full."""
        line = json_of({"time_ns": time.time_ns(), "kind": event.kind, **_fields(event)}, default=_plain)
        try:
            with self._path.open("a+b") as file:
                if file.seek(0, os.SEEK_END):
                    file.seek(-1, os.SEEK_END)
                    if file.read() != b"\n":
                        file.write(b"\n")
                file.write(line.encode() + b"\n")
        except OSError as error:
            raise TestbedError(f"{self._path}: cannot be written: {error.strerror}") from error


class ResultDirectory:
    """The files of one campaign."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = path / "campaign.sqlite"
        self.manifest = path / "manifest.json"  # environment before and after, versions, seed, command line
        self.topology = path / "topology.yaml"  # as resolved
        self.profile = path / "profile.yaml"  # as resolved
        self.events = path / "events.jsonl"
        self.report = path / "report.html"
        self.summary = path / "summary.json"  # findings and verdicts for other programs
        self.captures = path / "captures"  # captures that are being read or are kept
        self._lock = path / ".lock"
        beside_store = (path / f"{self.store.name}-{end}" for end in ("wal", "shm", "journal"))
        # The files of a campaign that are written before its manifest.
        self._first_files = (self._lock, self.captures, self.topology, self.profile, self.store, *beside_store)

    def keep_console(self, uut: str, log: str) -> None:
        """Store the console output of a UUT that failed, in place of an earlier one; an empty log is not stored.

        TestbedError if it cannot be written.
        """
        if log:
            consoles = self.path / "consoles"
            try:
                consoles.mkdir(exist_ok=True)
                (consoles / f"{uut}.log").write_bytes(encoded(log))
            except OSError as error:
                raise TestbedError(f"{consoles}: cannot be written: {error.strerror}") from error

    def refuse_existing(self) -> None:
        """Raise UsageError if the path exists, unless it only contains the remains of a start that was killed."""
        try:
            is_taken = self.path.exists() and (not self.path.is_dir() or self._is_begun())
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be used: {error.strerror}; name another with -o") from error
        if is_taken:
            go_on = f"go on with `netbench resume {self.path}`, or " if self.manifest.exists() else ""
            raise UsageError(f"{self.path} already exists; {go_on}name another with -o")

    def _is_begun(self) -> bool:
        """Return True if it contains more than the first files of a campaign without trials or manifest."""
        others = [path for path in self.path.iterdir() if path not in self._first_files and not is_temporary(path)]
        return bool(others) or (self.captures.is_dir() and any(self.captures.iterdir())) or not is_empty(self.store)

    @contextmanager
    def created(self, topology: Topology, profile: Profile, manifest: dict[str, Any]) -> Iterator[None]:
        """Create the directory with everything but its trials, and lock it for the block.

        UsageError if it contains something already. TestbedError if it cannot be written; the new files are then
        removed, but not a directory that existed before.
        """
        self.refuse_existing()
        new = [path for path in (self.path, *self.path.parents) if not path.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be made: {error.strerror}; name another with -o") from error
        try:
            lock = self.lock()
        except TestbedError:
            _remove_empty(new)
            raise
        with lock:
            self.refuse_existing()  # another run may have been first
            try:
                self._remove_first_files()
                self.captures.mkdir()
                write_atomically(self.topology, _as_yaml(topology))
                write_atomically(self.profile, _as_yaml(profile))
                Store.create(self.store).close()
                self.write_manifest(manifest)
            except BaseException as error:  # Ctrl-C too: half a directory can be neither resumed nor reused
                with suppress(OSError):  # the cause is raised below
                    self._remove_first_files()
                    self._lock.unlink()
                    _remove_empty(new)
                if isinstance(error, OSError):
                    raise TestbedError(f"{self.path}: cannot be written: {error.strerror}") from error
                raise
            yield

    def _remove_first_files(self) -> None:
        remove_temporary_files(self.path)
        for path in self._first_files:
            if path.is_dir():
                path.rmdir()  # the directory of captures, which is still empty
            elif path != self._lock:
                path.unlink(missing_ok=True)

    def lock(self) -> AbstractContextManager[IO[str]]:
        """Return a context manager that locks the directory; TestbedError if another process is working on it."""
        try:
            file = lock_file(self._lock)
        except OSError as error:
            raise TestbedError(f"{self.path}: cannot be written: {error.strerror}") from error
        if file is None:
            raise TestbedError(f"{self.path}: another netbench is working on it; wait until it is done")
        return file

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Write manifest.json; TestbedError if that is impossible, also if the directory was removed."""
        try:
            write_atomically(self.manifest, (json_of(manifest, indent=2) + "\n").encode())
        except UsageError as error:
            raise TestbedError(f"{self.path}: was removed, or cannot be written any more") from error

    def read_manifest(self) -> dict[str, Any]:
        """Return the content of manifest.json, with its head checked; UsageError if this is not a result directory."""
        try:
            manifest: dict[str, Any] = json.loads(self.manifest.read_bytes())
            ManifestHead.model_validate(manifest)
        except OSError as error:
            raise UsageError(
                f"{self.path}: is no result directory of `netbench run`: manifest.json: {error.strerror}"
            ) from error
        except (ValueError, RecursionError) as error:
            problem = first_problem(error) if isinstance(error, ValidationError) else error
            raise UsageError(f"{self.manifest}: is damaged: {problem}") from error
        return manifest

    @contextmanager
    def complete_store(self, opened: Callable[[Path], Store]) -> Iterator[Store]:
        """Yield the store, opened by `Store.read` or `Store.open`, and close it after the block.

        UsageError if the event log shows that it contained more trials than now. SQLite does not report the loss of
        trials whose write-ahead log is missing or damaged.
        """
        logged = stored_trials(self.events)  # before the store is read: a campaign may be adding to both
        with closing(opened(self.store)) as store:
            stored = len(store)
            if stored < logged:
                raise UsageError(
                    f"{self.store}: {logged} trials were stored and it holds {stored}: {self.store.name}-wal, which "
                    "had the latest, is missing or damaged; put it back"
                )
            yield store

    def results(self, *, counters: bool = True) -> CampaignResults:
        """Return all results of the directory for reports, exports and comparisons; UsageError if it cannot be read.

        Without `counters` trials are read faster; the sums of the counters are included in any case.
        """
        manifest = self.read_manifest()
        trials, searches = StoredTrials(self.store, counters), SEARCHES.of(manifest)
        with self.complete_store(Store.read) as store:
            planned, keys = manifest["planned_trials"], set(store)
            maxima = MaximumSearch()
            # A search that is part of the trials found the maxima, and only shared-idle has one. Replayed loads refer
            # to maxima of another campaign.
            is_replay = manifest.get("loads_from") is not None
            if planned is not None and not is_replay and any(store.trials(scenario=SHARED_IDLE, counters=False)):
                for trial in trials:
                    maxima.add(trial)
            of_loads = tuple(search for search in searches if not search.for_maxima)
            of_maxima = tuple(search for search in searches if search.for_maxima)
            if planned is None and (after := manifest.get("planned_after_search")):
                planned = max(after + sum(map(key_finds_maximum, keys)), len(keys))  # results may require more trials
            return CampaignResults(
                topology=manifest["topology"],
                profile=manifest["profile"],
                planned_trials=planned or len(trials),
                uuts=tuple(manifest["uuts"]),
                trials=trials,
                warnings=store.warnings(),
                manifest=manifest,
                facts=store.facts(),
                maxima=(*maxima.referred_to(), *filter(None, map(maximum_of, of_maxima))),
                ended_sweeps=ENDED_SWEEPS.of(manifest),
                searches=of_loads,
                maxima_searches=of_maxima,
                added_up=Stored(self.store, Store.added_up),
                boots=store.boots(),
                warm_ups=Stored(self.store, Store.warm_ups),
                noise_floor=NOISE_FLOOR.of(manifest),
                stream_hosts=_stream_hosts(self.topology),
            )


def _stream_hosts(path: Path) -> dict[str, tuple[str, str]]:
    """Return the hosts of the source and of the UUT of each stream of topology.yaml; empty if it cannot be read."""
    try:
        ends = [(str(of["name"]), of["source"], of["ingress"]) for of in yaml_value(path.read_bytes())["streams"]]
    except (OSError, YAMLError, KeyError, TypeError):
        return {}
    return {name: (str(source).partition("/")[0], str(ingress).partition("/")[0]) for name, source, ingress in ends}


def _remove_empty(directories: Sequence[Path]) -> None:
    """Remove empty directories, the innermost first; stop at the first one that is not empty."""
    with suppress(OSError):  # another process has put a file there
        for directory in directories:
            directory.rmdir()


def _as_yaml(model: BaseModel) -> bytes:
    return yaml_text(plain(model, exclude_none=True)).encode()
