"""The caveats of a campaign with flows: tool and wire, failed operations, clients that did not keep up."""

from collections.abc import Iterable, Iterator, Sequence

from netbench.model.campaign import CampaignResults
from netbench.model.scenario import DEDICATED
from netbench.report.finding import MOST_NAMED
from netbench.report.formats import count, enumerated, rough_percent, sentence, three_digits
from netbench.report.styles import label
from netbench.statistics.flow_figures import flows_of
from netbench.statistics.flow_witnesses import WitnessedFigure, WorkloadDisagreement, disagreements, is_ended_by_host
from netbench.statistics.workload_groups import WorkloadGroup

_MANY_ERRORS = 0.01  # of the operations: from here on, percentiles of the completed ones are too good
_BUSY = 0.9  # of one CPU: from here on, the client may be the limit
_REACHED = 0.99  # of the intended operations: below, the client did not keep up


def conditions_of(group: WorkloadGroup) -> str:
    """The workload, load, clients and scenario of a cell: `http at 500/s, cpu-heavy`."""
    clients = f", {count(group.sources, 'client')}" if group.sources > 1 else ""
    scenario = "no neighbour" if group.scenario == DEDICATED else group.scenario
    return f"{group.workload} at {group.load}{clients}, {scenario}"


def _disagreement(results: CampaignResults, found: WorkloadDisagreement) -> str:
    """`http in 20 of 36 trials, by up to 231 µs (request to response, p99; raw at 500/s, cpu-heavy)`."""
    text = f"{found.workload} in {found.disagreeing:,} of {count(found.trials, 'trial')}"
    if found.largest is None:
        return text
    group = found.largest.group
    cell = f"{label(group.uut, results.emulated)} at {group.load}, {group.scenario}"
    return f"{text}, by up to {_size(found.largest)} ({found.largest.title}; {cell})"


def _size(figure: WitnessedFigure) -> str:
    if figure.difference_us is not None:
        return f"{three_digits(abs(figure.difference_us))} µs"
    return rough_percent(abs(figure.difference or 0.0))


def flow_caveats(results: CampaignResults, groups: Sequence[WorkloadGroup]) -> Iterator[tuple[str, str]]:
    """The limits of the figures, each with the id of the section that shows it.

    The loads of a search overload servers and clients on purpose: their results have the limits.
    """
    if differing := disagreements(groups):
        texts = [_disagreement(results, found) for found in differing[:MOST_NAMED]]
        yield sentence("flow_findings.disagree", workloads="; ".join(texts)), "witness"
    if ended := [group for group in groups if any(map(is_ended_by_host, flows_of(group.valid)))]:
        yield sentence("flow_findings.ended_by_host", uuts=_named(results, ended)), "witness"
    if results.searches:
        return
    valid = [len(group.valid) for group in groups if group.valid]
    if max(valid) == 1:
        yield sentence("caveats.one_repetition"), "results"
    failing = [group for group in groups if (of := group.figures.get("error_ratio")) and of.mean > _MANY_ERRORS]
    if failing:
        worst = max(failing, key=lambda group: group.figures["error_ratio"].mean)
        yield (
            sentence(
                "flow_findings.lost" if worst.has_datagrams else "flow_findings.failed",
                uuts=_named(results, failing),
                worst=rough_percent(worst.figures["error_ratio"].mean),
                where=conditions_of(worst),
                times=sentence("flow_findings.of_completed") if any(group.kind_of_times for group in failing) else "",
            ),
            "rates",
        )
    if busy := [group for group in groups if (share := _client_share(group)) is not None and share > _BUSY]:
        worst = max(busy, key=lambda group: _client_share(group) or 0.0)
        most = rough_percent(_client_share(worst))
        text = sentence("flow_findings.busy_client", uuts=_named(results, busy), share=most, where=conditions_of(worst))
        yield text, "rates"
    slow = [group for group in groups if (reached := _reached(group)) is not None and reached < _REACHED]
    if slow:
        worst = min(slow, key=lambda group: _reached(group) or 0.0)
        yield (
            sentence(
                "flow_findings.not_started",
                uuts=_named(results, slow),
                part=rough_percent(_reached(worst)),
                where=conditions_of(worst),
            ),
            "rates",
        )


def _reached(group: WorkloadGroup) -> float | None:
    """The started operations ÷ the intended ones over the valid trials; None where they are unknown."""
    flows = [flow for trial in group.valid for flow in trial.victim.flows]
    known = [(flow.started, flow.intended) for flow in flows if flow.started is not None and flow.intended]
    return sum(started for started, _ in known) / sum(intended for _, intended in known) if known else None


def _client_share(group: WorkloadGroup) -> float | None:
    """The largest share of one CPU that a client used in a valid trial; None where it is unknown."""
    shares = (flow.client_cpu_share for trial in group.valid for flow in trial.victim.flows)
    return max((share for share in shares if share is not None), default=None)


def _named(results: CampaignResults, groups: Iterable[WorkloadGroup]) -> str:
    names = [label(uut, results.emulated) for uut in dict.fromkeys(group.uut for group in groups)]
    return enumerated(names[:MOST_NAMED])
