"""The accounts of a stream that is alone in its trial."""

from typing import Any

from netbench.model.counts import StreamCounts
from netbench.trial.accounting import accounts
from netbench.trial.observation import NicDelta, StreamObservation


def nic_delta(**counts: Any) -> NicDelta:
    """A NIC that was up all the time, whose other counters did not grow."""
    none = dict.fromkeys(("rx", "tx", "rx_dropped", "tx_dropped", "rx_errors", "tx_errors"), 0)
    return NicDelta(**{**none, "up": True, "carrier_changes": 0, **counts})


def account(evidence: StreamObservation) -> StreamCounts:
    """What became of its frames."""
    return accounts([evidence])[evidence.path.name]
