"""A result directory: the store, the manifest, and what was asked for, as resolved."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import yaml
from pydantic import BaseModel, ValidationError

from netbench.config.wording import first_problem
from netbench.errors import TestbedError, UsageError
from netbench.linux.state import lock_file
from netbench.model.campaign import CampaignResults
from netbench.model.documents import plain
from netbench.model.foreign_text import encoded, json_of
from netbench.model.profile import Profile
from netbench.model.scenario import SHARED_IDLE
from netbench.model.topology import Topology
from netbench.model.trial import key_finds_maximum
from netbench.results.atomic import is_temporary, remove_temporary_files, write_atomically
from netbench.results.event_log import told_of
from netbench.results.manifest import ManifestHead, ended_sweeps_of, noise_floor_of, searches_of
from netbench.results.store import Store, StoredCounters, StoredTrials, StoredWarmUps, is_empty
from netbench.statistics.reference_throughput import MaximumSearch, maximum_of


@dataclass(frozen=True, slots=True)
class ResultDirectory:
    """The paths in one result directory."""

    path: Path

    @property
    def store(self) -> Path:
        """The SQLite file."""
        return self.path / "campaign.sqlite"

    @property
    def manifest(self) -> Path:
        """The environment before and after, versions, seed, command line."""
        return self.path / "manifest.json"

    @property
    def topology(self) -> Path:
        """The topology as resolved."""
        return self.path / "topology.yaml"

    @property
    def profile(self) -> Path:
        """The profile as resolved."""
        return self.path / "profile.yaml"

    @property
    def events(self) -> Path:
        """What happened when."""
        return self.path / "events.jsonl"

    @property
    def report(self) -> Path:
        """The HTML page."""
        return self.path / "report.html"

    @property
    def summary(self) -> Path:
        """Findings and verdicts for other programs."""
        return self.path / "summary.json"

    def keep_console(self, uut: str, log: str) -> None:
        """Keep what a UUT wrote to its console before it failed; the last such time counts, and nothing for nothing.

        TestbedError when it cannot be written.
        """
        if log:
            consoles = self.path / "consoles"
            try:
                consoles.mkdir(exist_ok=True)
                (consoles / f"{uut}.log").write_bytes(encoded(log))
            except OSError as error:
                raise TestbedError(f"{consoles}: cannot be written: {error.strerror}") from error

    @property
    def captures(self) -> Path:
        """Captures, while they are read, and those that are kept."""
        return self.path / "captures"

    def refuse_existing(self) -> None:
        """UsageError when there is something here already, other than what a start that was killed at once leaves."""
        try:
            taken = self.path.exists() and (not self.path.is_dir() or self._is_begun())
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be used: {error.strerror}; name another with -o") from error
        if taken:
            go_on = f"go on with `netbench resume {self.path}`, or " if self.manifest.exists() else ""
            raise UsageError(f"{self.path}: is there already; {go_on}name another with -o")

    def _is_begun(self) -> bool:
        """Whether there is anything but the beginnings of a campaign without a trial: its manifest is written last."""
        others = [path for path in self.path.iterdir() if path not in self._beginnings and not is_temporary(path)]
        return bool(others) or (self.captures.is_dir() and any(self.captures.iterdir())) or not is_empty(self.store)

    @property
    def _beginnings(self) -> tuple[Path, ...]:
        """What there is of a campaign before its manifest."""
        store = self.store
        beside_store = (store.with_name(f"{store.name}-{end}") for end in ("wal", "shm", "journal"))
        return (self._lock, self.captures, self.topology, self.profile, store, *beside_store)

    @contextmanager
    def created(self, topology: Topology, profile: Profile, manifest: dict[str, Any]) -> Iterator[None]:
        """Make the directory and all but its trials, and hold it for the block.

        UsageError when it holds something already; TestbedError when it cannot be written, and then what was begun is
        removed, but for a directory that was there before.
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
                self._remove_beginnings()
                self.captures.mkdir()
                write_atomically(self.topology, _as_yaml(topology))
                write_atomically(self.profile, _as_yaml(profile))
                Store.create(self.store).close()
                self.write_manifest(manifest)
            except BaseException as error:  # Ctrl-C too: half a directory could be neither resumed nor used again
                with suppress(OSError):  # why it was not made is raised below
                    self._remove_beginnings()
                    self._lock.unlink()
                    _remove_empty(new)
                if isinstance(error, OSError):
                    raise TestbedError(f"{self.path}: cannot be written: {error.strerror}") from error
                raise
            yield

    def _remove_beginnings(self) -> None:
        remove_temporary_files(self.path)
        for path in self._beginnings:
            if path.is_dir():
                path.rmdir()  # the captures, of which there are none yet
            elif path != self._lock:
                path.unlink(missing_ok=True)

    @property
    def _lock(self) -> Path:
        return self.path / ".lock"

    def lock(self) -> AbstractContextManager[IO[str]]:
        """Hold the directory; TestbedError when another process is working on it."""
        try:
            file = lock_file(self._lock)
        except OSError as error:
            raise TestbedError(f"{self.path}: cannot be written: {error.strerror}") from error
        if file is None:
            raise TestbedError(f"{self.path}: another netbench is working on it; wait until it is done")
        return file

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Write manifest.json; TestbedError when that is not possible, where somebody removed the directory too."""
        try:
            write_atomically(self.manifest, (json_of(manifest, indent=2) + "\n").encode())
        except UsageError as error:
            raise TestbedError(f"{self.path}: was removed, or cannot be written any more") from error

    def read_manifest(self) -> dict[str, Any]:
        """What manifest.json holds, its head checked; UsageError when this is no result directory."""
        try:
            manifest: dict[str, Any] = json.loads(self.manifest.read_bytes())
            ManifestHead.model_validate(manifest)
        except OSError as error:
            raise UsageError(
                f"{self.path}: is no result directory of `netbench run`: manifest.json: {error.strerror}"
            ) from error
        except ValidationError as error:
            raise UsageError(f"{self.manifest}: is damaged: {first_problem(error)}") from error
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{self.manifest}: is damaged: {error}") from error
        return manifest

    @contextmanager
    def complete_store(self, opened: Callable[[Path], Store]) -> Iterator[Store]:
        """The store as `Store.read` or `Store.open` has it, closed after the block.

        UsageError when it is known to have held more trials than it holds now: those in its write-ahead log are lost
        when that is not there, or damaged, and SQLite says nothing of it.
        """
        stored = told_of(self.events)  # before the store is read: a campaign may be adding to both
        with closing(opened(self.store)) as store:
            held = len(store.keys())
            if held < stored:
                raise UsageError(
                    f"{self.store}: {stored} trials were stored and it holds {held}: {self.store.name}-wal, which had "
                    "the latest, is missing or damaged; put it back"
                )
            yield store

    def results(self, *, counters: bool = True) -> CampaignResults:
        """Everything the directory says, for reports, exports and comparisons; UsageError when it cannot be read.

        Without `counters` trials are read faster; those added up are there all the same.
        """
        manifest = self.read_manifest()
        trials = StoredTrials(self.store, counters)
        with self.complete_store(Store.read) as store:
            planned, searches, done = manifest["planned_trials"], searches_of(manifest), store.keys()
            maxima = MaximumSearch()
            # Where a search is among the trials, it found them; and nothing but shared-idle has one. Replayed loads
            # refer to maxima of another campaign.
            is_replay = manifest.get("loads_from") is not None
            if planned is not None and not is_replay and any(store.trials(scenario=SHARED_IDLE, counters=False)):
                for trial in trials:
                    maxima.add(trial)
            found = [maximum_of(one) for one in searches if one.for_maxima]
            if planned is None and (after := manifest.get("planned_after_search")):
                planned = max(after + sum(map(key_finds_maximum, done)), len(done))  # results may call for more
            return CampaignResults(
                topology=manifest["topology"],
                profile=manifest["profile"],
                planned_trials=planned or len(trials),
                uuts=tuple(manifest["uuts"]),
                trials=trials,
                warnings=store.warnings(),
                manifest=manifest,
                facts=store.facts(),
                maxima=(*maxima.referred_to(), *(one for one in found if one is not None)),
                ended_sweeps=ended_sweeps_of(manifest),
                searches=tuple(one for one in searches if not one.for_maxima),
                maxima_searches=tuple(one for one in searches if one.for_maxima),
                added_up=StoredCounters(self.store),
                boots=store.boots(),
                warm_ups=StoredWarmUps(self.store),
                noise_floor=noise_floor_of(manifest),
            )


def _remove_empty(directories: Sequence[Path]) -> None:
    """Remove directories, the innermost first, as far as they are empty."""
    with suppress(OSError):  # somebody else has put something there
        for directory in directories:
            directory.rmdir()


def _as_yaml(model: BaseModel) -> bytes:
    text: str = yaml.safe_dump(plain(model, exclude_none=True), sort_keys=False, allow_unicode=True)
    return text.encode()
