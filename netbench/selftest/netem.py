"""Check of delay where the kernel itself can be told to delay, as that of the VM can: by netem, on the whole path."""

from collections.abc import Iterator

from netbench.model.selftest_record import Check
from netbench.model.topology import UutSpec
from netbench.model.verdict import Verdict
from netbench.selftest.forwarders import judge_delay
from netbench.selftest.tester import Tester, complaints
from netbench.uut.base import ActiveGuest

_DELAY_MS = 20
# What a frame takes beside that, on the emulated CPU of a VM, where timers are late too.
_BOUND_NS = 5_000_000
_ATTEMPTS = 3

DELAYING = UutSpec.model_validate(
    {"name": f"delays-by-{_DELAY_MS}ms", "kind": "reference", "drop": {"k": 0, "n": 1}, "delay": f"{_DELAY_MS}ms"}
)


def check_netem(tester: Tester, active: ActiveGuest) -> Iterator[Check]:
    """The median delay of one stream; whoever takes the CPU for a moment spoils it, so one trial of a few must do."""
    for attempt in range(_ATTEMPTS):
        result = tester.measure(active, DELAYING.name, tester.modest())
        problem = complaints(result) if result.verdict is not Verdict.VALID else ""
        check = judge_delay(DELAYING.name, result.streams[0], _DELAY_MS * 1_000_000, _BOUND_NS, problem)
        if check.passed or attempt == _ATTEMPTS - 1:
            yield check
            return
