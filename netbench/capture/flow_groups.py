"""Loss by flow, and by groups of flows with one value of a varying field, from the numbers of the frames that arrived.

Frame number n belongs to flow n mod flows, so that the lost numbers are sufficient. It imports only numpy and the
standard library: other hosts load it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.changed_values import number_text
from netbench.capture.sequences import SequenceTracker
from netbench.model.frame_template import ExpectedHeaders, VaryingPlace
from netbench.model.packet import high_bits
from netbench.model.packet_counts import MAX_GROUPS, FieldGroups, FlowGroup
from netbench.packets.flow_values import value_numbers, values_of

# So many gaps are added to the flows at once: as long as the most flows, so that neither memory nor time grows.
_GAPS_AT_ONCE = 1 << 20


class FlowLosses(NamedTuple):
    """The number of flows that lost frames, and for each varying field the groups that lost frames."""

    lossy_flows: int
    groups: tuple[FieldGroups, ...]


class FlowFrames(NamedTuple):
    """Frames by flow, int64 of shape (flows,): those sent, and those of them that never arrived."""

    sent: NDArray[np.int64]
    lost: NDArray[np.int64]


def flow_losses(tracker: SequenceTracker, numbers: range, headers: ExpectedHeaders) -> FlowLosses:
    """Return the losses of the flows of a stream; `numbers` are those that were sent, and `tracker` has the arrived."""
    frames = flow_frames(tracker, numbers, headers.flows)
    groups = tuple(_groups_of(varying, frames) for varying in headers.varying)
    return FlowLosses(int(np.count_nonzero(frames.lost)), groups)


def flow_frames(tracker: SequenceTracker, numbers: range, flows: int) -> FlowFrames:
    """Return the frames of each flow. Time and memory depend on the gaps between arrived numbers only."""
    sent = _RangeTally(flows)
    sent.add(np.array([numbers.start]), np.array([numbers.stop]))
    lost, waiting, count = _RangeTally(flows), [], 0
    for gaps in tracker.gaps(numbers.start, numbers.stop):
        waiting.append(gaps)
        count += len(gaps[0])
        if count >= _GAPS_AT_ONCE:
            lost.add_all(waiting)
            waiting, count = [], 0
    lost.add_all(waiting)
    return FlowFrames(sent.by_flow(), lost.by_flow())


class _RangeTally:
    """Counts the numbers of ranges by their remainder modulo the number of flows."""

    def __init__(self, flows: int) -> None:
        self._flows = flows
        self._of_all = 0  # of each flow, from ranges longer than all flows
        # Difference from the flow before: a range adds 1 at its beginning, and takes it away after its end.
        self._steps = np.zeros(flows + 1, np.int64)

    def add_all(self, ranges: list[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> None:
        """Add ranges in pieces, each as of `add`."""
        if ranges:
            starts, stops = zip(*ranges, strict=True)
            self.add(np.concatenate(starts), np.concatenate(stops))

    def add(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        """Add the ranges from `starts` up to, but excluding, `stops`; of shape (n,)."""
        rounds, rest = np.divmod(stops - starts, self._flows)
        self._of_all += int(rounds.sum())
        begins = starts % self._flows
        ends = begins + rest
        wraps = ends > self._flows
        self._steps[0] += int(np.count_nonzero(wraps))  # such a range continues at flow 0
        ends = np.where(wraps, ends - self._flows, ends)
        self._steps += np.bincount(begins, minlength=self._flows + 1)
        self._steps -= np.bincount(ends, minlength=self._flows + 1)

    def by_flow(self) -> NDArray[np.int64]:
        """Return the count of each flow, of shape (flows,)."""
        counts: NDArray[np.int64] = np.cumsum(self._steps[:-1]) + self._of_all
        return counts


def _groups_of(varying: VaryingPlace, frames: FlowFrames) -> FieldGroups:
    """Return the flows by the value of a field, in groups of equally many values; the last group may have fewer."""
    of_flow = value_numbers(varying, np.arange(len(frames.sent)))
    used = values_of(varying.values, varying.seed)[: int(of_flow.max()) + 1]
    values, rank = np.unique(used, return_inverse=True)  # a list may have a value twice
    per_group = -(-len(values) // MAX_GROUPS)
    groups = -(-len(values) // per_group)
    of_flow = rank[of_flow] // per_group
    sent, lost = (_sums(of_flow, counts, groups) for counts in frames)
    lossy = []
    for group in np.flatnonzero(lost).tolist():
        ends = values[group * per_group], values[min((group + 1) * per_group, len(values)) - 1]
        label = "–".join(value_text(varying, int(value)) for value in dict.fromkeys(ends))
        lossy.append(FlowGroup(label, int(sent[group]), int(sent[group] - lost[group])))
    return FieldGroups(varying.name, groups, tuple(lossy))


def _sums(group_of: NDArray[np.int64], counts: NDArray[np.int64], groups: int) -> NDArray[np.int64]:
    """Return the sum of the counts of each group, int64 of shape (groups,).

    The sums are exact below 2⁵³: np.bincount adds 64-bit floating-point numbers.
    """
    return np.bincount(group_of, counts, groups).astype(np.int64)


def value_text(varying: VaryingPlace, value: int) -> str:
    """Return a value of a varying field as text, from its low 64 bits: `100`, `198.18.1.0`, `2001:2::1`, `02:…`."""
    return number_text(high_bits(varying.values) | value, varying.kind)
