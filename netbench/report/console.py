"""The table at the end of a run: what was measured, at a glance."""

from collections import Counter
from collections.abc import Iterable, Iterator

from rich import box
from rich.table import Table
from rich.text import Text

from netbench.model.verdict import Verdict
from netbench.report import emulation
from netbench.report.formats import kfps, mbps, mean, percent
from netbench.results.campaign import CampaignResults
from netbench.results.groups import Group, group_trials

_STYLES = {Verdict.VALID: "green", Verdict.SUSPICIOUS: "yellow", Verdict.INVALID: "red"}


def summary_table(results: CampaignResults) -> Table:
    """A row per UUT, frame size and load: means over the valid trials, and the verdicts; the reasons below.

    All sources of a trial are added up; UUTs whose CPU is emulated are marked. Scenario and number of sources have
    columns only where they differ.
    """
    groups = group_trials(results)
    scenarios = len({group.scenario for group in groups}) > 1
    sources = len({group.sources for group in groups}) > 1
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        caption="\n".join(("means of the valid trials; Mbit/s on the wire (L1)", *_remarks(results))),
        caption_justify="left",
    )
    table.add_column("UUT", overflow="fold", min_width=4)
    if scenarios:
        table.add_column("Scenario", overflow="fold")
    for heading in (
        *(("Sources",) if sources else ()),
        "Frame\nsize",
        "Intended\nMbit/s",
        "Offered\nMbit/s",
        "Throughput\nMbit/s",
        "\nkfps",
        "Loss\n%",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("Verdict", no_wrap=True)
    for previous, group in zip((None, *groups), groups, strict=False):
        if previous is not None and previous.uut != group.uut:
            table.add_section()
        name = emulation.label(group.uut, results.emulated)
        table.add_row(
            *map(Text, (name, *_place(group, scenarios, sources))), *map(Text, _numbers(group)), _verdict(group)
        )
    return table


def _place(group: Group, scenarios: bool, sources: bool) -> Iterable[str]:
    if scenarios:
        yield group.scenario
    if sources:
        yield str(group.sources)
    yield f"{group.frame_size:,}"


def _numbers(group: Group) -> tuple[str, ...]:
    return (
        str(group.load) if group.intended_mbps is None else mbps(group.intended_mbps),
        mbps(mean(group.offered_mbps)),
        mbps(mean(group.throughput_mbps)),
        kfps(mean(group.throughput_fps)),
        percent(mean(group.loss_ratio)).removesuffix(" %"),
    )


def _verdict(group: Group) -> Text:
    """How many trials are valid, suspicious and invalid; a line each."""
    lines = []
    for verdict, trials in (
        (Verdict.VALID, group.valid),
        (Verdict.SUSPICIOUS, group.suspicious),
        (Verdict.INVALID, group.invalid),
    ):
        if trials:
            lines.append(Text(f"{len(trials):,} {verdict.value}", style=_STYLES[verdict]))
    return Text("\n").join(lines)


def _remarks(results: CampaignResults) -> Iterator[str]:
    """What the mark of emulated UUTs means; a line for each kind of reason against trials, the most frequent first."""
    if results.emulated:
        yield emulation.LEGEND
    kinds = Counter(kind for trial in results.trials for kind in {reason.kind for reason in trial.reasons})
    for kind, trials in kinds.most_common():
        yield f"{kind.verdict.value} for {kind.value}: {trials:,} trial{'s' * (trials > 1)}"
