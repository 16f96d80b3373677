"""Walks a plan: provision, trial, store; resume, locks, events."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from netbench.caveats import caveats, refused_loads
from netbench.config.loading import load_profile, load_topology
from netbench.errors import TestbedError, UsageError
from netbench.hosts.signals import Stopped
from netbench.model.paths import stream_paths
from netbench.model.profile import Profile
from netbench.model.topology import Topology
from netbench.model.verdict import Warning, WarningKind
from netbench.plan import Costs, Plan, expected_seconds, make_plan
from netbench.plugins import GENERATORS, UUTS, option_models
from netbench.results.directory import ResultDirectory
from netbench.results.environment import read_environment
from netbench.results.events import Announcer, EventLog, Observer
from netbench.results.host_warnings import host_warnings
from netbench.results.manifest import begin_manifest, finished, resumed
from netbench.results.store import Store
from netbench.testbed import Testbed, make_uut, open_testbed, usable_cpus
from netbench.visit import Visits

# What a VM takes to start and to be set up, and a trial inside one: every step goes through its channel. About.
_VM_S = 9.0
_VM_TRIAL_S = 2.0


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be measured, read and checked; nothing of it has touched the machine yet."""

    topology: Topology
    profile: Profile
    plan: Plan
    uuts: tuple[str, ...]
    scenarios: tuple[str, ...]


def read_request(
    topology_file: Path,
    profile_file: Path,
    *,
    uuts: Sequence[str] = (),
    scenarios: Sequence[str] = (),
    settings: Sequence[str] = (),
) -> Request:
    """Read and check a topology and a profile with `--set` overrides; UsageError says what is wrong."""
    topology = load_topology(topology_file, option_models(UUTS), settings)
    profile = load_profile(profile_file, option_models(GENERATORS), settings)
    return make_request(topology, profile, uuts, scenarios)


def make_request(
    topology: Topology, profile: Profile, uuts: Sequence[str] = (), scenarios: Sequence[str] = ()
) -> Request:
    """Plan a topology and a profile that were read already; UsageError when they do not fit together."""
    plan = make_plan(topology, profile, uuts, scenarios, _costs(topology))
    chosen = tuple(uut.name for uut in topology.uuts if not uuts or uut.name in uuts)
    for uut in topology.uuts:
        if uut.name in chosen:
            try:
                make_uut(uut).check(stream_paths(topology))
            except UsageError as error:
                raise UsageError(f"UUT {uut.name}: {error}") from error
    impossible = refused_loads(topology, profile)
    if impossible:
        raise UsageError(impossible)
    return Request(topology, profile, plan, chosen, tuple(scenarios or profile.scenarios))


def start(request: Request, directory: ResultDirectory, command: Sequence[str], observers: Sequence[Observer]) -> None:
    """Run a campaign into a new directory, which is made once the testbed is up: a refusal leaves none.

    Raises what opening the testbed and making the directory raise, and TestbedError when the testbed breaks.
    """
    with open_testbed(request.topology, request.profile, request.uuts) as testbed:
        manifest = begin_manifest(
            request.topology,
            request.profile,
            command=command,
            uuts=request.uuts,
            scenarios=request.scenarios,
            planned_trials=len(request.plan.trials),
            environment=read_environment(testbed.interfaces()),
        )
        directory.create(request.topology, request.profile, manifest)
        _walk(request, testbed, directory, manifest, observers)


def resume(directory: ResultDirectory, command: Sequence[str], observers: Sequence[Observer]) -> Request:
    """Go on with a campaign at the first trial that is missing; what was asked for, as read from the directory.

    Raises as `start` does, and UsageError for what is no result directory.
    """
    manifest = directory.read_manifest()
    topology = load_topology(directory.topology, option_models(UUTS))
    profile = load_profile(directory.profile, option_models(GENERATORS))
    request = make_request(topology, profile, manifest["uuts"], manifest["scenarios"])
    with closing(Store.read(directory.store)) as store:
        done = store.keys()
    planned = {trial.key for trial in request.plan.trials}
    if len(planned) != manifest["planned_trials"] or not done <= planned:
        raise UsageError(
            f"{directory.path}: topology.yaml or profile.yaml is not what this campaign was started with; "
            "put it back, or start a new campaign with -o"
        )
    if len(done) == len(request.plan.trials) and manifest.get("finished"):
        return request
    with open_testbed(topology, profile, request.uuts) as testbed:
        _walk(request, testbed, directory, resumed(manifest, command), observers)
    return request


def _walk(
    request: Request,
    testbed: Testbed,
    directory: ResultDirectory,
    manifest: dict[str, Any],
    observers: Sequence[Observer],
) -> None:
    """Measure what is missing; TestbedError, with what was measured kept, when the testbed breaks."""
    announcer = Announcer([EventLog(directory.events), *observers])
    with directory.lock(), closing(Store.open(directory.store)) as store:
        try:
            directory.write_manifest(manifest)
            _measure_missing(request, testbed, directory, manifest, store, announcer)
        except (TestbedError, Stopped) as error:
            _note_end(announcer, error)
            raise


def _measure_missing(
    request: Request,
    testbed: Testbed,
    directory: ResultDirectory,
    manifest: dict[str, Any],
    store: Store,
    announcer: Announcer,
) -> None:
    done = store.keys()
    missing = [trial for trial in request.plan.trials if trial.key not in done]
    announcer.announce(
        "campaign-started",
        topology=request.topology.name,
        profile=request.profile.name,
        planned=len(request.plan.trials),
        done=len(done),
        expected_s=expected_seconds(missing, request.profile, _costs(request.topology)),
    )
    store.keep_warnings(caveats(request.topology, request.profile, len(usable_cpus())))
    store.keep_warnings(host_warnings(manifest["before"], None))
    store.keep_warnings([Warning(WarningKind.SOURCE_REMARK, remark) for remark in testbed.remarks()])
    specs = {uut.name: uut for uut in request.topology.uuts}
    visits = Visits(testbed, request.profile, directory, store, announcer)
    for name, trials in groupby(missing, key=lambda trial: trial.uut):
        visits.measure(specs[name], trials)
    complete = finished(manifest, read_environment(testbed.interfaces()))
    store.keep_warnings(host_warnings(complete["before"], complete["after"]))
    directory.write_manifest(complete)
    announcer.announce("campaign-finished", trials=len(request.plan.trials))


def _costs(topology: Topology) -> Costs:
    uut_s = {spec.name: make_uut(spec).bring_up_s for spec in topology.uuts}
    vms = len(topology.vms)
    return Costs(vms * _VM_S, _VM_TRIAL_S if vms else Costs().trial_s, uut_s)


def _note_end(announcer: Announcer, error: BaseException) -> None:
    try:
        announcer.announce("campaign-stopped", why=str(error))
    except TestbedError:
        return  # the disk may be full: that is what is being reported
