"""The accounts of a stream that is alone in its trial."""

from netbench.model.counts import StreamCounts
from netbench.trial.accounting import accounts
from netbench.trial.observation import StreamObservation


def account(evidence: StreamObservation) -> StreamCounts:
    """What became of its frames."""
    return accounts([evidence])[evidence.path.name]
