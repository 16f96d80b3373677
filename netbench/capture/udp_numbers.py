"""The numbers that a tool writes into datagrams: lost, duplicated and reordered ones; requests and their responses."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.tcp_sequence import group_starts
from netbench.model.flow_witness import UNKNOWN_NS, FlowDirection


class NumberedDatagrams(NamedTuple):
    """Datagrams with a number, in the order of the file, in int64 arrays with one element each; times since 1970.

    `frame` is the number of its frame, or of that of its first fragment, in the capture.
    """

    session: NDArray[np.int64]
    direction: NDArray[np.int64]
    number: NDArray[np.int64]
    times_ns: NDArray[np.int64]
    frame: NDArray[np.int64]

    @classmethod
    def joined(cls, parts: "list[NumberedDatagrams]") -> "NumberedDatagrams":
        """Return the datagrams of several batches, by time."""
        if not parts:
            none = np.empty(0, np.int64)
            return cls(none, none, none, none, none)
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.argsort(columns[3], kind="stable")  # a batch has them by layout of headers
        return cls(*(column[order] for column in columns))

    def of(self, direction: FlowDirection) -> "NumberedDatagrams":
        """Return those of one direction."""
        these = self.direction == direction
        return NumberedDatagrams(*(column[these] for column in self))


def order_counts(datagrams: NumberedDatagrams, first: int | None) -> tuple[int, int, int]:
    """Return how many datagrams of one direction are lost, duplicated and reordered.

    `first` is the first number of each session, None for the lowest one captured.
    """
    lost = duplicated = reordered = 0
    order = np.argsort(datagrams.session, kind="stable")
    starts = group_starts(datagrams.session[order])
    for numbers in np.split(datagrams.number[order], starts[1:]) if len(order) else ():
        distinct, places = np.unique(numbers, return_index=True)
        lowest = int(distinct[0]) if first is None else min(first, int(distinct[0]))
        lost += int(distinct[-1]) - lowest + 1 - len(distinct)
        duplicated += len(numbers) - len(distinct)
        is_original = np.zeros(len(numbers), np.bool_)
        is_original[places] = True
        reordered += int(np.count_nonzero(is_original & (numbers < np.maximum.accumulate(numbers))))
    return lost, duplicated, reordered


def find_exchanges(
    datagrams: NumberedDatagrams, ends_ns: NDArray[np.int64], zero_ns: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return session, number, start of the request and end of the response since `zero_ns`, by session and number."""
    session, direction, number, times_ns, _ = datagrams
    order = np.lexsort((direction, number, session))  # stable: the first of duplicates comes first
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = False
    for column in (session, direction, number):
        is_first[1:] |= np.diff(column[order]) != 0
    order = order[is_first]
    requests = np.flatnonzero(direction[order] == FlowDirection.TO_SERVER)
    following = np.minimum(requests + 1, max(len(order) - 1, 0))
    asked, answered = order[requests], order[following]
    has_response = (direction[answered] == FlowDirection.TO_CLIENT) & (session[asked] == session[answered])
    has_response &= number[asked] == number[answered]
    response_ns = np.where(has_response, ends_ns[answered] - zero_ns, UNKNOWN_NS)
    return session[asked], number[asked], times_ns[asked] - zero_ns, response_ns
