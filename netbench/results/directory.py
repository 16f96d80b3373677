"""A result directory: the store, the manifest, and what was asked for, as resolved."""

import json
import shutil
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import yaml
from pydantic import BaseModel, ValidationError

from netbench.errors import TestbedError, UsageError
from netbench.linux.state import lock_file
from netbench.model.campaign import CampaignResults
from netbench.model.profile import Profile
from netbench.model.scenario import SHARED_IDLE
from netbench.model.topology import Topology
from netbench.results.atomic import write_atomically
from netbench.results.manifest import ManifestHead
from netbench.results.store import Store, StoredTrials
from netbench.statistics.reference_throughput import MaximumSearch


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

    def keep_console(self, uut: str, log: str) -> None:
        """Keep what a UUT wrote to its console before it failed; the last such time counts, and nothing for nothing.

        TestbedError when it cannot be written.
        """
        if log:
            consoles = self.path / "consoles"
            try:
                consoles.mkdir(exist_ok=True)
                (consoles / f"{uut}.log").write_text(log)
            except OSError as error:
                raise TestbedError(f"{consoles}: cannot be written: {error.strerror}") from error

    @property
    def captures(self) -> Path:
        """Captures, while they are read, and those that are kept."""
        return self.path / "captures"

    def refuse_existing(self) -> None:
        """UsageError when there is something here already."""
        try:
            taken = self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir()))
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be used: {error.strerror}; name another with -o") from error
        if taken:
            raise UsageError(
                f"{self.path}: is there already; go on with `netbench resume {self.path}`, or name another with -o"
            )

    def create(self, topology: Topology, profile: Profile, manifest: dict[str, Any]) -> None:
        """Make the directory and all but its trials.

        UsageError when it holds something already; TestbedError when it cannot be written, and then
        what was begun is removed.
        """
        self.refuse_existing()
        try:
            self.captures.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be made: {error.strerror}; name another with -o") from error
        try:
            write_atomically(self.topology, _as_yaml(topology))
            write_atomically(self.profile, _as_yaml(profile))
            Store.create(self.store).close()
            self.write_manifest(manifest)
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def lock(self) -> AbstractContextManager[IO[str]]:
        """Hold the directory; TestbedError when another process is working on it."""
        try:
            file = lock_file(self.path / ".lock")
        except OSError as error:
            raise TestbedError(f"{self.path}: cannot be written: {error.strerror}") from error
        if file is None:
            raise TestbedError(f"{self.path}: another netbench is working on it; wait until it is done")
        return file

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Write manifest.json."""
        write_atomically(self.manifest, (json.dumps(manifest, indent=2) + "\n").encode())

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
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"])) or "the whole"
            raise UsageError(f"{self.manifest}: is damaged: {field}: {first['msg']}") from error
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{self.manifest}: is damaged: {error}") from error
        return manifest

    def results(self) -> CampaignResults:
        """Everything the directory says, for reports, exports and comparisons; UsageError when it cannot be read."""
        manifest = self.read_manifest()
        trials = StoredTrials(self.store)
        with closing(Store.read(self.store)) as store:
            maxima = MaximumSearch()
            if any(store.trials(scenario=SHARED_IDLE)):  # nothing else is a maximum
                for trial in trials:
                    maxima.add(trial)
            return CampaignResults(
                topology=manifest["topology"],
                profile=manifest["profile"],
                planned_trials=manifest["planned_trials"] or len(trials),
                uuts=tuple(manifest["uuts"]),
                trials=trials,
                warnings=store.warnings(),
                manifest=manifest,
                facts=store.facts(),
                maxima=maxima.referred_to(),
            )


def _as_yaml(model: BaseModel) -> bytes:
    text: str = yaml.safe_dump(model.model_dump(mode="json", exclude_none=True), sort_keys=False, allow_unicode=True)
    return text.encode()
