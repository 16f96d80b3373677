"""Queueing disciplines, and the drops of classifiers before and behind them.

What a classful discipline counts as dropped holds the drops of all below it: each passes on its children's failures
to enqueue (net/sched/sch_htb.c, sch_tbf.c, …) and later drops (qdisc_tree_reduce_backlog in net/sched/sch_api.c), and
`mq` sums its queues up when asked (net/sched/sch_mq.c). So only the root of each device is read. No NIC counter repeats
these drops.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

CLASSIFIERS = ("ingress", "clsact")

_TC_H_ROOT, _TC_H_INGRESS = 0xFFFFFFFF, 0xFFFFFFF1  # linux/pkt_sched.h


@dataclass(frozen=True, slots=True)
class Queue:
    """The root discipline of an interface, or (one of CLASSIFIERS) what is hooked in beside it; `dropped` in frames."""

    interface: str
    kind: str
    dropped: int


def read_queues(socket: Any, names: Mapping[int, str]) -> Iterator[Queue]:  # noqa: ANN401 - pyroute2 is untyped
    """Those of some interfaces, by index, as an IPRoute tells them."""
    for one in socket.get_qdiscs():
        if one["index"] in names and one["parent"] in (_TC_H_ROOT, _TC_H_INGRESS):
            stats = one.get_nested("TCA_STATS2", "TCA_STATS_QUEUE")
            yield Queue(names[one["index"]], one.get_attr("TCA_KIND"), stats["drops"] if stats else 0)


def parse_queues(text: str) -> Iterator[Queue]:
    """Those of all interfaces, from what `tc -s -j qdisc show` prints; ValueError or LookupError for anything else."""
    for one in json.loads(text or "[]"):
        if one.get("root") or one["kind"] in CLASSIFIERS:
            yield Queue(one["dev"], one["kind"], int(one["drops"]))
