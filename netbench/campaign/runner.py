"""Runs and resumes campaigns: plan, testbed, trials, results, events."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import Any

from netbench.campaign.boots import Boots
from netbench.campaign.record import CampaignRecord
from netbench.campaign.request import CampaignRequest, make_request
from netbench.campaign.testbeds import Testbeds
from netbench.config.loading import load_profile, load_topology
from netbench.config.plugins import UUTS, option_models, profile_kinds
from netbench.errors import TestbedError, UsageError
from netbench.linux.locks import OtherMeasurement
from netbench.linux.recovery_journal import clean
from netbench.model.events import (
    CampaignDisturbed,
    CampaignFinished,
    CampaignStarted,
    CampaignStopped,
    CampaignWaits,
    Observer,
    UutFailed,
)
from netbench.model.profile import LOADS, MaximaSpec, SinkSpec
from netbench.model.selftest_record import Ceilings, SelftestRecord
from netbench.model.source_ceiling import CeilingComparison, SourceCeiling
from netbench.model.topology_specs import UutSpec
from netbench.model.trial import TrialResult, TrialSpec, key_finds_maximum
from netbench.model.verdict import CampaignWarning, WarningKind
from netbench.plan.duration import TimeLeft
from netbench.plan.schedule import Schedule, refuse_wrong_trial
from netbench.plan.warnings import (
    ceiling_unknown_on,
    expected_warnings,
    selftest_warnings,
    skipped_traffic,
)
from netbench.results.atomic import remove_temporary_files
from netbench.results.directory import EventLog, ResultDirectory, attempts_without_result
from netbench.results.manifest import (
    CEILINGS,
    ENDED_SWEEPS,
    SELFTEST,
    begin_manifest,
    digests,
    finished,
    first_difference,
    replayed_loads,
    resumed,
)
from netbench.results.selftests import fingerprint, latest_record
from netbench.results.store import Store
from netbench.signals import Stopped
from netbench.testbed.cpus import usable_cpus
from netbench.testbed.environment import git_revision, host_warnings, read_environment
from netbench.testbed.open_testbed import open_testbed
from netbench.testbed.preconditions import machine_held, with_what_lacks
from netbench.testbed.testbed import Testbed
from netbench.trial.source_calibration import calibrate_sources, can_calibrate


def start(
    request: CampaignRequest,
    directory: ResultDirectory,
    command: Sequence[str],
    observers: Sequence[Observer],
    *,
    wait: bool = False,
) -> None:
    """Run a campaign into a new directory, which is created once the testbed is up: a rejected campaign leaves none.

    With `wait` it begins when no other netbench measures on this machine.
    Raises the exceptions of opening the testbed and creating the directory, and TestbedError if the testbed breaks.
    """
    profile = request.profile
    request = replace(request, resolved=with_what_lacks(request.resolved))
    with _testbeds(request, observers, wait=wait) as testbeds:
        testbed = testbeds.of(_first_uut(request, ()))
        own = fingerprint(testbed.topology, profile.generator, testbed.sends(), testbed.receives(), profile.sink)
        planned, planned_after_search = request.numbers
        manifest = begin_manifest(
            request.topology,
            profile,
            command=command,
            uuts=request.uuts,
            scenarios=request.scenarios,
            planned_trials=planned,
            planned_after_search=planned_after_search,
            environment=read_environment(testbed.interfaces()),
            revision=git_revision(),
            selftest=latest_record(own),
            loads_from=request.replayed,
        )
        with directory.created(request.topology, profile, manifest):
            _measure(request, testbeds, testbed, directory, manifest, observers)


def resume(
    directory: ResultDirectory, command: Sequence[str], observers: Sequence[Observer], *, wait: bool = False
) -> CampaignRequest:
    """Continue a campaign at the first missing trial; return its request, as read from the directory.

    Raises as `start` does, and UsageError if the directory is not a result directory.
    """
    if os.geteuid() == 0:  # even if no trial is missing; other users cannot clean up
        clean()
    manifest = directory.read_manifest()
    topology = load_topology(directory.topology, option_models(UUTS))
    profile = planned = load_profile(directory.profile, profile_kinds())
    if manifest["planned_trials"] is not None and profile.maxima is None:  # older versions found maxima among the loads
        planned = profile.model_copy(update={"maxima": MaximaSpec(kind=LOADS)})
    request = make_request(topology, planned, manifest["uuts"], manifest["scenarios"], replayed_loads(manifest))
    request.schedule.use_ceilings(_without_uut(CEILINGS.of(manifest)))
    with directory.complete_store(Store.read) as store:
        done, following = set(store), request.schedule.next(store)
    _refuse_changed(directory, manifest, request, digests(topology, profile), done)
    if manifest.get("finished") and following is None:
        return request
    request = replace(request, resolved=with_what_lacks(request.resolved))
    with _testbeds(request, observers, wait=wait) as testbeds:
        trial = following.spec if isinstance(following, TrialResult) else following
        testbed = testbeds.of(_first_uut(request, [trial.uut] if trial else ()))
        with directory.lock():
            remove_temporary_files(directory.path)
            # Another process may have changed the manifest while this one waited for it.
            _measure(request, testbeds, testbed, directory, resumed(directory.read_manifest(), command), observers)
    return request


def _refuse_changed(
    directory: ResultDirectory,
    manifest: Mapping[str, Any],
    request: CampaignRequest,
    present: Mapping[str, Mapping[str, str]],
    done: Iterable[str],
) -> None:
    """Raise UsageError if a campaign was started with another topology, profile or plan."""
    for file, digest in present.items():
        key = first_difference(manifest["digests"][file], digest)
        if key is not None:
            raise UsageError(
                f"{directory.path}/{file}.yaml: {key} is not what this campaign was started with; put it back, or "
                "start a new campaign with -o"
            )
    planned = {trial.key for trial in (*request.schedule.planned, *request.schedule.added)}
    unknown = {key for key in done if not key_finds_maximum(key)} - planned
    numbers = manifest["planned_trials"], manifest.get("planned_after_search")
    if request.numbers != numbers or (planned and unknown):
        raise UsageError(
            f"{directory.path}: netbench, or a plug-in, plans other trials than when this campaign was started; go on "
            "with the version that manifest.json names, or start a new campaign with -o"
        )


@contextmanager
def _testbeds(request: CampaignRequest, observers: Sequence[Observer], *, wait: bool) -> Iterator[Testbeds]:
    """Yield the testbeds of a campaign; their part of this machine stays reserved between two testbeds too."""

    def report_wait(other: OtherMeasurement) -> None:
        for observer in observers:
            observer.on(CampaignWaits(other.pid, other.topology))

    with (
        machine_held(request.resolved, report_wait if wait else None) as held,
        Testbeds(request.resolved, lambda resolved: open_testbed(resolved, held)) as testbeds,
    ):
        yield testbeds


def _first_uut(request: CampaignRequest, following: Sequence[str]) -> str:
    """Return the first UUT without missing requirements: of the following trials, else of the plan."""
    planned = (trial.uut for trial in request.schedule.trials or ())
    return next(uut for uut in (*following, *planned, *request.uuts) if uut not in request.resolved.lacking)


def _measure(
    request: CampaignRequest,
    testbeds: Testbeds,
    testbed: Testbed,
    directory: ResultDirectory,
    manifest: dict[str, Any],
    observers: Sequence[Observer],
) -> None:
    """Measure the missing trials; TestbedError if the testbed breaks, and the results so far are kept."""
    with closing(Store.open(directory.store)) as store:
        record = CampaignRecord(directory, store, [EventLog(directory.events), *observers], manifest)
        try:
            _keep_identities(testbed, record)
            _measure_missing(request, testbeds, testbed, record)
        except (TestbedError, Stopped) as error:
            with suppress(TestbedError):  # the disk may be full, which is the error that is being reported
                record.report(CampaignStopped(str(error)))
            raise


def _keep_identities(testbed: Testbed, record: CampaignRecord) -> None:
    """Record the identities of sources, sinks and hosts, and the remarks on them."""
    identities = testbed.identities()
    record.keep_identities(identities)
    remarks = {
        WarningKind.LINK_REMARK: [link.remark for link in identities.links.values() if link.remark],
        WarningKind.SOURCE_REMARK: testbed.remarks(),
        WarningKind.PACKET_SOCKETS: testbed.port_warnings,
    }
    record.store.keep_warnings([CampaignWarning(kind, text) for kind, texts in remarks.items() for text in texts])


def _measure_missing(request: CampaignRequest, testbeds: Testbeds, testbed: Testbed, record: CampaignRecord) -> None:
    topology, profile, schedule, store = request.topology, request.profile, request.schedule, record.store
    time_left = TimeLeft(schedule, set(store))
    record = replace(record, time_left=time_left)
    planned, _ = request.numbers
    if planned is not None:
        # Sweeps that ended before the campaign was resumed. An end that was not reported before the stop is reported
        # now.
        planned -= sum(sweep.skipped_trials for sweep in ENDED_SWEEPS.of(record.manifest))
    record.report(
        CampaignStarted(
            topology.name, profile.name, planned, len(record.store), time_left.seconds, time_left.expected_number
        )
    )
    record.keep_others(testbed.others())
    selftest, of_host = SELFTEST.of(record.manifest), host_warnings(record.manifest["before"], None)
    store.keep_warnings(expected_warnings(topology, profile, len(usable_cpus())))
    store.keep_warnings(schedule.remarks)
    store.keep_warnings(skipped_traffic(profile, request.resolved.unsupported))
    store.keep_warnings(of_host)
    argument = request.topology_argument or str(record.directory.topology)
    earlier = {warning.kind for warning in store.warnings()}  # of a resumed campaign, which names another file
    of_selftest = selftest_warnings(selftest, argument, profile)
    store.keep_warnings([warning for warning in of_selftest if warning.kind not in earlier])
    for warning in of_host:
        if warning.kind is WarningKind.CPU_LIMIT:
            record.report(CampaignDisturbed(warning.text))
    boots = Boots(
        testbeds,
        profile,
        record.directory.captures,
        record,
        count(store.last_boot() + 1),
        lacking=request.resolved.lacking,
        earlier=attempts_without_result(record.directory.events),
    )

    def opened(another: Testbed) -> None:
        _keep_identities(another, record)
        _look_up_ceilings(another, selftest, boots)

    _look_up_ceilings(testbed, selftest, boots)
    _calibrate(schedule, testbed, boots)
    testbeds.opened = opened
    for uut, missing in request.resolved.lacking.items():
        record.report(UutFailed(uut, missing))
    measure_all(schedule, boots, {uut.name: uut for uut in topology.uuts})
    complete = finished(record.manifest, read_environment(testbeds.interfaces()))
    store.keep_warnings(host_warnings(complete["before"], complete["after"]))
    record.directory.write_manifest(complete)
    record.report(CampaignFinished(len(record.store)))


def _look_up_ceilings(testbed: Testbed, selftest: SelftestRecord | None, boots: Boots) -> None:
    """Use the ceilings of the campaign's self-test for trials on a testbed, if it was made on this testbed."""
    profile, place = boots.profile, testbed.topology.places[0]
    tester = testbed.topology, profile.generator, testbed.sends(), testbed.receives()
    by_default = latest_record(fingerprint(*tester, SinkSpec()))
    boots.reference_holds[place] = by_default.known_ceilings if by_default else Ceilings()
    if selftest is None or not selftest.ceilings:
        return  # a warning for the whole campaign exists already
    if selftest.fingerprint == fingerprint(*tester, profile.sink):
        boots.ceilings[place] = selftest.known_ceilings
    elif not profile.tool:
        boots.record.store.keep_warnings([ceiling_unknown_on(place)])


def _calibrate(schedule: Schedule, testbed: Testbed, boots: Boots) -> None:
    """Give the schedule the ceilings of the sources: those of the manifest, else of samples without a UUT.

    A campaign that has results without ceilings continues without them: its results must lead to the same trials.
    """
    record = boots.record
    ceilings = _without_uut(CEILINGS.of(record.manifest))
    if not ceilings and not record.store:
        try:
            ceilings = list(_calibrated(schedule, testbed, boots))
        except TestbedError:  # trials through the UUTs then calibrate the sources, and show their faults
            testbed.renew_endpoints()
    schedule.use_ceilings(ceilings)
    record.keep_ceilings((*ceilings, *schedule.ceilings))


def _calibrated(schedule: Schedule, testbed: Testbed, boots: Boots) -> Iterator[SourceCeiling]:
    setup, profile, on = testbed.setup({}), boots.profile, testbed.topology.places[0]
    streams = [stream.name for stream in testbed.topology.own_streams]
    selftest = boots.ceilings.get(on, Ceilings())
    for sources, frame_size in schedule.needed_ceilings:
        endpoints = [setup.endpoints[name] for name in streams[:sources]]
        if can_calibrate(endpoints):
            fps = selftest.fps(sources, frame_size)
            # The self-test sends plain frames; sources may be slower with other packets.
            compared = [CeilingComparison("the self-test", fps)] if fps and not frame_size.packet else []
            options = {"flows": profile.flows, "seed": profile.seed}
            yield calibrate_sources(setup, endpoints, frame_size, **options, on=on, compared_with=compared)


def _without_uut(ceilings: Iterable[SourceCeiling]) -> list[SourceCeiling]:
    """Return the ceilings that were measured without a UUT."""
    return [ceiling for ceiling in ceilings if not ceiling.uut]


def measure_all(schedule: Schedule, boots: Boots, uuts: Mapping[str, UutSpec]) -> None:
    """Measure the trials of a schedule, boot by boot; each result is stored before the next trial is requested."""
    record = boots.record

    def next_trial() -> TrialSpec | None:
        while isinstance(following := schedule.next(record.store), TrialResult):
            record.keep(following)
        if following is not None:
            refuse_wrong_trial(following, schedule, uuts, record.store)
        record.keep_ended(schedule.ended_sweeps)
        record.keep_searches(schedule.searches)
        record.keep_ceilings((*_without_uut(CEILINGS.of(record.manifest)), *schedule.ceilings))
        return following

    while (first := next_trial()) is not None:
        planned_boot = (first.uut, first.boot)

        def of_same_boot(planned_boot: tuple[str, int] = planned_boot) -> TrialSpec | None:
            following = next_trial()
            return following if following and (following.uut, following.boot) == planned_boot else None

        with closing(boots.measure(uuts[first.uut], of_same_boot)) as measured:
            for result in measured:
                record.keep(result)
                record.keep_others(boots.testbeds.others())
