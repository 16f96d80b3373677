"""The section about delay as measured by the tester's own software, which is coarse."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from netbench.model.distributions import DelayClass, SoftwareDelay
from netbench.report.formats import UNKNOWN, count, frames
from netbench.report.markup import Html, TableColumn, folded, table
from netbench.report.sections import Section, View, chosen, note, section
from netbench.report.styles import Style
from netbench.report.tables import by_size_title, uut_label
from netbench.statistics.groups import Group


def software_delay_sections(choice: Sequence[View], looks: Mapping[str, Style]) -> Iterable[Section]:
    """The section about these delays; nothing where none were measured."""
    delays = [delay for view in choice for group in view.groups for delay in _delays(group)]
    if delays:
        yield section(
            "software-delay",
            "Delay by the tester's own software (coarse)",
            note(
                f"As {', '.join(sorted({d.measured_by for d in delays}))} says, of the frames of its own among those"
                " of each stream, over the valid trials. Each time includes how long that software took to look at what"
                " had arrived: these are upper bounds, and no percentiles can be had of them. Mean is the mean of its"
                " smoothed means, jitter (RFC 3550) the largest of the trials. The table is in µs."
            ),
            chosen(choice, lambda view: _table(view, looks)),
        )


def _table(view: View, looks: Mapping[str, Style]) -> Html:
    known = [group for group in view.groups if _delays(group)]
    if not known:
        return note("None was measured.")
    columns: tuple[TableColumn[Group], ...] = (
        TableColumn("UUT", lambda group: uut_label(group.uut, looks)),
        TableColumn("Load per source", lambda group: str(group.load)),
        TableColumn("Frames", lambda group: frames(sum(delay.frames for delay in _delays(group))), "number"),
        TableColumn("Smallest", lambda group: _text(min(_known(group, "smallest_us"), default=None)), "number"),
        TableColumn("Mean", _mean, "number"),
        TableColumn("Largest", lambda group: _text(max(_known(group, "largest_us"), default=None)), "number"),
        TableColumn("Jitter", lambda group: _text(max(_known(group, "jitter_us"), default=None)), "number"),
        TableColumn("Frames by their delay", _classes, "words"),
    )
    return folded(count(len(known), "measurement"), len(known), table(columns, by_size_title(known), css="results"))


def _delays(group: Group) -> list[SoftwareDelay]:
    streams = (counts for trial in group.valid for counts in trial.streams)
    return [counts.software_delay for counts in streams if counts is not None and counts.software_delay is not None]


def _known(group: Group, name: str) -> list[float]:
    return [time for delay in _delays(group) if (time := getattr(delay, name)) is not None]


def _mean(group: Group) -> str:
    means = _known(group, "smoothed_mean_us")
    return _text(sum(means) / len(means) if means else None)


def _text(time_us: float | None) -> str:
    return UNKNOWN if time_us is None else f"{time_us:,.0f}"


def _classes(group: Group) -> str:
    sums: Counter[tuple[int, int]] = Counter()
    for delay in _delays(group):
        sums.update({(delay_class.from_us, delay_class.below_us): delay_class.frames for delay_class in delay.classes})
    return " · ".join(class_text(DelayClass(*ends, number)) for ends, number in sorted(sums.items())) or UNKNOWN


def class_text(one: DelayClass) -> str:
    """`20–29: 1,234`: whole µs, and how many frames took so long."""
    return f"{one.from_us:,}–{one.below_us - 1:,}: {one.frames:,}"
