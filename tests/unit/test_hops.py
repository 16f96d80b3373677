"""What a UUT's own counters say, summed over trials."""

from netbench.model.counts import HopCount
from netbench.statistics.uut_counters import UutCounter, uut_counters
from tests.unit.results_factory import neighbour, stream_counts, trial

SHARED = (
    HopCount("guest softnet", "dropped", "repeated", 2),
    HopCount("guest IP layer", "ForwDatagrams", "passed", 900),
)


def own(tap: int | None) -> tuple[HopCount, ...]:
    return (
        HopCount("generator", "sent", "passed", 1000),
        HopCount("ingress NIC", "rx", "passed", 1000),
        HopCount("egress tap", "rx", "passed", 890),
        HopCount("ingress tap", "tx_dropped", "dropped", tap),
        HopCount("egress NIC", "tx", "passed", 890),
        HopCount("capture", "dropped", "dropped", 0),
    )


def test_counters_are_summed_over_streams_and_trials_from_source_to_sink() -> None:
    two = trial(stream_counts("s1", hops=own(10)), stream_counts("s2", hops=own(5)), hops=SHARED)
    one = trial(stream_counts("s1", hops=own(1)), hops=SHARED)
    assert uut_counters([two, one]) == [
        UutCounter("ingress tap", "tx_dropped", "dropped", 16, 2),
        UutCounter("guest softnet", "dropped", "repeated", 4, 2),
        UutCounter("guest IP layer", "ForwDatagrams", "passed", 1800, 2),
        UutCounter("egress tap", "rx", "passed", 2670, 2),
    ]


def test_what_the_only_stream_shares_with_none_is_not_counted_twice() -> None:
    alone = trial(stream_counts(hops=(*own(10), *SHARED)), hops=SHARED)
    assert {one.counter: one.frames for one in uut_counters([alone])} == {
        "tx_dropped": 10,
        "dropped": 2,
        "ForwDatagrams": 900,
        "rx": 890,
    }


def test_an_unknown_growth_is_no_zero() -> None:
    trials = [trial(stream_counts(hops=own(10))), trial(stream_counts(hops=own(None)))]
    assert [(one.frames, one.trials) for one in uut_counters(trials) if one.hop == "ingress tap"] == [(10, 1)]
    assert "ingress tap" not in [one.hop for one in uut_counters(trials[1:])]


def test_a_uut_that_counts_nothing_has_no_counters() -> None:
    outside = tuple(hop for hop in own(0) if "tap" not in hop.hop)
    assert uut_counters([trial(stream_counts(hops=outside)), trial(streams=("s1",))]) == []


def test_counters_of_a_neighbour_are_none_of_the_uuts() -> None:
    beside = neighbour(stream_counts("s2", hops=own(7)), hops=SHARED)
    alone = trial(stream_counts(hops=own(10)), hops=SHARED)
    shared = trial(stream_counts(hops=own(10)), hops=SHARED, neighbours=(beside,))
    assert uut_counters([shared]) == uut_counters([alone])
