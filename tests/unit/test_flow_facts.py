"""The facts on which the throughput of many flows depends, as a kernel shows them."""

import pytest

from netbench.hosts.base import Completed
from netbench.linux.flow_facts import flow_facts
from tests.unit.fakes import FakeHost

LIMITS = {
    "/proc/sys/net/netfilter/nf_conntrack_max": "262144\n",
    "/proc/sys/net/netfilter/nf_conntrack_buckets": "65536\n",
}
RSS = "RX flow hash indirection table for eth0 with 4 RX ring(s):\n    0:      0     1     2     3\n"


def shown(*masks: str) -> str:
    return "".join(f"/sys/class/net/eth0/queues/rx-{n}/rps_cpus:{mask}\n" for n, mask in enumerate(masks))


@pytest.mark.parametrize(
    ("answers", "files", "facts"),
    [
        ({"sh": shown("00"), "ethtool": ""}, {}, ("1", "none", "not in this kernel")),
        ({"sh": shown("00", "0f"), "ethtool": RSS}, LIMITS, ("2 (RPS on 1)", "4 rings", "up to 262,144 connections")),
        ({"sh": shown("0000,00000000"), "ethtool": RSS.replace("4 RX", "1 RX")}, {}, ("1", "none", "not in")),
        ({}, {}, ("unknown", "unknown", "not in this kernel")),
        ({"sh": "", "ethtool": ""}, {}, ("unknown", "none", "not in this kernel")),
    ],
)
def test_queues_rss_and_conntrack_are_stated_or_unknown(answers, files, facts):
    host = FakeHost({name: Completed((name,), 0, text, "") for name, text in answers.items()}, files)
    found = flow_facts(host, ["in1", "out1"])
    assert list(found) == ["receive_queues", "rss", "conntrack"]
    assert all(text.startswith(start) for text, start in zip(found.values(), facts, strict=True))
