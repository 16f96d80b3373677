"""Frame order over the trials of a UUT (duplicates, reordering, loss runs), and bidirectional streams by direction."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from netbench.model.trial import TrialResult
from netbench.statistics.groups import Group, Repetitions
from netbench.statistics.totals import Totals, ratio


@dataclass(frozen=True, slots=True)
class FrameOrder:
    """The order of frames in some trials, all their streams added up.

    `reordered` counts the streams whose order is known; None if there are none. `reordered_ratio` is relative to the
    frames these received (RFC 4737, section 4.1). `run_lengths` are numbers of loss runs by the fewest frames of their
    class, as in LossRuns. `extent_frames` is the largest reordering extent; None if no frame was reordered.
    """

    received: int
    duplicates: int
    reordered: int | None
    reordered_ratio: float | None
    extent_frames: int | None
    loss_runs: int
    longest_run_frames: int
    run_lengths: tuple[tuple[int, int], ...]


def order_refusals(trials: Iterable[TrialResult]) -> dict[str, int]:
    """Return the number of streams of these trials whose order is unknown, by reason."""
    return Counter(counts.order_refused for trial in trials for counts in trial.streams if counts.order_refused)


def order_of(trials: Iterable[TrialResult]) -> FrameOrder | None:
    """Return the order of frames in some trials; None if no stream has distinguishable frames."""
    known = [counts for trial in trials for counts in trial.streams if counts.duplicate_frames is not None]
    if not known:
        return None
    lengths: Counter[int] = Counter()
    for counts in known:
        for run_class in counts.loss_run_lengths:
            lengths[run_class.from_frames] += run_class.runs
    in_order = [counts for counts in known if counts.reordered_frames is not None]
    reordered = sum(counts.reordered_frames or 0 for counts in in_order) if in_order else None
    extents = [counts.reordering_extent_max_frames for counts in known]
    return FrameOrder(
        received=sum(counts.received_frames or 0 for counts in known),
        duplicates=sum(counts.duplicate_frames or 0 for counts in known),
        reordered=reordered,
        reordered_ratio=ratio(reordered, sum(counts.received_frames or 0 for counts in in_order)),
        extent_frames=max((extent for extent in extents if extent is not None), default=None),
        loss_runs=sum(counts.loss_runs or 0 for counts in known),
        longest_run_frames=max(counts.longest_loss_run_frames or 0 for counts in known),
        run_lengths=tuple(sorted(lengths.items())),
    )


@dataclass(frozen=True)  # no slots: the instance caches computed values
class Direction(Repetitions):
    """One stream of a bidirectional measurement; `reverse_of` names its forward stream if this is a reverse stream."""

    group: Group
    stream: str
    reverse_of: str


def directions(groups: Iterable[Group]) -> list[Direction]:
    """Return each stream of the groups in which frames went both ways, from their valid trials."""
    return [direction for group in groups for direction in _of_group(group)]


def _of_group(group: Group) -> Iterator[Direction]:
    reverse_of = {
        counts.stream: counts.reverse_of for totals in group.valid for counts in totals.streams if counts is not None
    }
    if any(reverse_of.values()):
        for stream, forward in reverse_of.items():
            valid = tuple(
                Totals((counts,), group.frame_size, {}, None, totals.trial.boot)
                for totals in group.valid
                for counts in totals.streams
                if counts is not None and counts.stream == stream
            )
            yield Direction(group.frame_size, valid, group, stream, forward)
