from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.intervals import ratio_of_means
from netbench.model.counts import StreamCounts
from netbench.model.frame_size import FrameSize
from netbench.model.scenario import Stress
from netbench.model.trial import TrialResult
from netbench.model.verdict import Reason, ReasonKind
from netbench.report.formats import index_limits
from netbench.statistics.groups import Group, Victim, group_trials
from netbench.statistics.interference import curves, matrix, relative_maxima, worst_isolation
from netbench.statistics.intervals import Interval, RatioOfMeans, Unknown, statement
from netbench.statistics.limits import with_limits
from netbench.statistics.sharing import background, cpu_use, fairness, jain_index
from tests.unit.results_factory import Neighbour, beside, campaign, neighbour, stream_counts, trial, victim

INVALID = (Reason(ReasonKind.NEIGHBOUR_FAILED, "", "neighbour second: went away"),)
RAW = Victim("raw", 1, FrameSize.of(64))
SUSPICIOUS = (Reason(ReasonKind.FOREIGN_FRAMES, "n1", "3 frames"),)
# 1,000 frames of 64 bytes a second are 0.672 Mbit/s, 100 of 1,500 bytes 1.216 Mbit/s.


def frames(sent: int, received: int | None = None, stream: str = "s1") -> StreamCounts:
    """Return the counts of 1 s."""
    return stream_counts(stream, sent=sent, received=sent if received is None else received)


def idle(name: str = "second") -> Neighbour:
    return neighbour(name=name)


def stress(name: str = "second", **cpu_s: float) -> Neighbour:
    return neighbour(name=name, activity=Stress(8, 4), cpu_s=cpu_s)


def forwards(
    sent: int, received: int | None = None, *, name: str = "second", size: int = 64, share: int = 50
) -> Neighbour:
    activity = {"network": f"{share}%", "frame_size": size}
    return neighbour(frames(sent, received, f"{name}-n1"), name=name, activity=activity)


def counted(one: Neighbour, *streams: StreamCounts) -> Neighbour:
    return one[0], replace(one[1], streams=streams)


def measured(*received: int, load: str = "1000fps", **more) -> list[TrialResult]:
    """Return a trial for each repetition, with 1,000 frames sent in each."""
    return [trial(frames(1000, left), load=load, repetition=number, **more) for number, left in enumerate(received, 1)]


def about(interval: Interval | None, digits: int = 9) -> tuple[float, float | None, int]:
    """Return mean, half width and repetitions, without rounding errors of the arithmetic."""
    assert interval is not None
    half_width = None if interval.half_width is None else round(interval.half_width, digits)
    return round(interval.mean, digits), half_width, interval.n


def groups_of(*trials: TrialResult, uuts: tuple[str, ...] = ("raw",)) -> tuple[Group, ...]:
    return group_trials(campaign(trials, uuts=uuts))


def test_maxima_are_compared_each_at_its_own_load():
    groups = groups_of(
        *measured(500, 510, 505),
        *measured(900, 910, 905, load="2000fps"),
        *measured(800, 700, 750, scenario="cpu-heavy"),
        *measured(300, 310, 305, load="2000fps", scenario="cpu-heavy"),
    )
    (one,) = relative_maxima(groups)
    assert (one.victim, one.scenario, one.baseline) == (RAW, "cpu-heavy", "dedicated")
    assert (str(one.best.load), str(one.base.load)) == ("1000fps", "2000fps")
    assert one.ratio == ratio_of_means([800, 700, 750], [900, 910, 905])
    assert one.isolation_index == pytest.approx(750 / 905)
    assert one.ratio.significant is True


def test_dedicated_is_the_baseline_and_shared_idle_where_there_is_none():
    groups = groups_of(
        *measured(100, 100, frame_size=64, scenario="shared-idle"),
        *measured(200, 200, frame_size=64, scenario="dedicated"),
        *measured(300, 300, frame_size=64, scenario="cpu-light"),
        *measured(100, 100, frame_size=500, scenario="shared-idle"),
        *measured(300, 300, frame_size=500, scenario="cpu-light"),
        *measured(300, 300, frame_size=1500, scenario="cpu-light"),
    )
    found = {
        (maximum.victim.frame_size.only_size, maximum.scenario): (maximum.baseline, maximum.ratio.ratio)
        for maximum in relative_maxima(groups)
    }
    assert found == {
        (64, "shared-idle"): ("dedicated", 0.5),
        (64, "cpu-light"): ("dedicated", 1.5),
        (500, "cpu-light"): ("shared-idle", 3.0),
    }


def test_only_valid_trials_have_a_say_and_only_victims_with_as_many_sources_are_compared():
    groups = groups_of(
        trial(frames(1000, 500, "s1"), frames(1000, 500, "s2"), scenario="cpu-heavy"),
        *measured(500, 500),
        *measured(250, 250, scenario="cpu-light"),
        *measured(900, scenario="cpu-light", reasons=SUSPICIOUS),
        *measured(1, 1, scenario="cpu-heavy", reasons=INVALID),
    )
    (one,) = relative_maxima(groups)
    assert (one.scenario, one.isolation_index) == ("cpu-light", 0.5)


def test_a_maximum_that_was_not_measured_at_the_load_of_the_baselines_is_unknown():
    """Only loads too low for any loss are left there: their ratio would be that of the loads."""
    invalid = (Reason(ReasonKind.OFFERED_OUT_OF_TOLERANCE, "s1", "offered 800 of 1,000 frames/s"),)
    groups = groups_of(
        *measured(900, 900),
        *measured(500, 500, load="500fps"),
        *measured(700, 700, scenario="cpu-heavy", reasons=invalid),
        *measured(500, 500, load="500fps", scenario="cpu-heavy"),
        *measured(500, 500, load="500fps", scenario="shared-idle", frame_size=500),
        *measured(950, 950, scenario="shared-idle", frame_size=500)[:1],
        *measured(950, 950, scenario="shared-idle", frame_size=500, reasons=invalid)[1:],
        *measured(900, 900, scenario="cpu-heavy", frame_size=500),
    )
    heavy, other = relative_maxima(groups)
    assert (heavy.ratio.ratio, heavy.ratio.unknown) == (None, Unknown.NOT_MEASURED)
    assert heavy.isolation_index is None
    assert statement(heavy.ratio) == "unknown: too few valid trials at the load of the baseline's maximum"
    assert worst_isolation([heavy]) == ()
    assert (other.ratio.ratio, other.ratio.unknown) == (None, Unknown.BASE_NOT_MEASURED)


def test_a_load_that_one_side_has_not_got_to_yet_reports_nothing_and_one_beyond_its_limit_does():
    def ratio_of(sent: int, received: int) -> tuple[float | None, Unknown | None]:
        left = [trial(frames(sent, received), scenario="cpu-heavy", repetition=number) for number in (1, 2)]
        full = [*measured(600, 600), *measured(900, 901, load="2000fps")]
        (one,) = relative_maxima(with_limits(groups_of(*full, *left)))
        return one.ratio.ratio, one.ratio.unknown

    assert ratio_of(500, 500) == (None, Unknown.NOT_MEASURED)
    ratio, unknown = ratio_of(600, 450)
    assert ratio == pytest.approx(450 / 900.5)
    assert unknown is None


def test_an_index_is_never_below_0_and_one_that_may_be_anything_is_not_reported():
    def index_of(*received: int) -> RatioOfMeans:
        groups = groups_of(*measured(900, 901), *measured(*received, scenario="cpu-heavy"))
        (one,) = relative_maxima(groups)
        return one.ratio

    anything = index_of(100, 700)
    assert (anything.low, anything.high, anything.significant) == (None, None, None)
    assert statement(anything).startswith("undecided with n = 2 (−")
    assert index_limits(anything) == ""
    little = index_of(0, 60)
    assert (little.low, little.significant) == (0.0, True)
    assert index_limits(little).startswith("0.000 … ")


def test_the_worst_isolation_of_each_uut():
    groups = groups_of(
        *measured(1000, 1000, uut="kvm"),
        *measured(900, 900, uut="kvm", scenario="cpu-light"),
        *measured(400, 400, uut="kvm", scenario="cpu-heavy"),
        *measured(1000, 1000, uut="kvm", frame_size=1500),
        *measured(1000, 1000, uut="kvm", frame_size=1500, scenario="cpu-heavy"),
        *measured(0, 0, uut="dead"),
        *measured(0, 0, uut="dead", scenario="cpu-heavy"),
        *measured(500, 500, uut="raw"),
        *measured(550, 550, uut="raw", scenario="cpu-light"),
        uuts=("raw", "dead", "kvm"),
    )
    maxima = relative_maxima(groups)
    assert [maximum.ratio.unknown for maximum in maxima if maximum.victim.uut == "dead"] == [Unknown.BASE_IS_ZERO]
    worst = [
        (maximum.victim.uut, maximum.victim.frame_size.only_size, maximum.scenario, maximum.isolation_index)
        for maximum in worst_isolation(maxima)
    ]
    assert worst == [("raw", 64, "cpu-light", 1.1), ("kvm", 64, "cpu-heavy", 0.4)]


def test_the_matrix_of_victims_and_scenarios():
    groups = groups_of(
        *measured(1000, 1000),
        *measured(800, 800, scenario="cpu-light"),
        *measured(600, 600, scenario="cpu-heavy"),
        *measured(1000, 1000, frame_size=1500),
        *measured(700, 700, frame_size=1500, scenario="cpu-heavy"),
        *measured(700, 700, frame_size=500, scenario="cpu-heavy"),
    )
    found = matrix(groups)
    small, large = RAW, Victim("raw", 1, FrameSize.of(1500))
    assert found.victims == (small, large)
    assert found.scenarios == ("cpu-light", "cpu-heavy")
    assert {where: cell.ratio.ratio for where, cell in found.cells.items()} == {
        (small, "cpu-light"): 0.8,
        (small, "cpu-heavy"): 0.6,
        (large, "cpu-heavy"): 0.7,
    }


def test_the_background_is_averaged_over_all_loads_and_repetitions():
    groups = groups_of(
        beside(trial(frames(1000), scenario="network-50", load="1000fps", repetition=1), forwards(1000, 1000)),
        beside(trial(frames(1000), scenario="network-50", load="1000fps", repetition=2), forwards(1000, 900)),
        beside(trial(frames(1000), scenario="network-50", load="2000fps", repetition=1), forwards(1000, 500)),
        beside(trial(frames(1000), scenario="network-50", load="2000fps", reasons=INVALID, repetition=2), forwards(9)),
        beside(trial(frames(1000), scenario="network-95", reasons=INVALID), forwards(9)),
        beside(trial(frames(1000), scenario="shared-idle"), idle()),
        trial(frames(1000)),
    )
    (one,) = background(groups)
    assert (one.victim, one.scenario) == (RAW, "network-50")
    assert one.activities == ("forwards 64-byte frames at 50% of the maximum",)
    assert about(one.offered_mbps, 5) == (0.672, 0.00067, 3)  # none of 3,000 frames unsent: 2.9957 ÷ 3,000 of it
    assert about(one.throughput_mbps)[::2] == (0.5376, 3)


def curve_trials() -> list[TrialResult]:
    """Highest throughput at 2000fps in dedicated, steps out of order; numbers at 1000fps that must not show up."""
    trials = [
        *measured(600, 600, load="1000fps"),
        *measured(900, 900, load="2000fps"),
        *measured(900, 900, load="3000fps"),
    ]
    for scenario, offered, left in (("network-95", 950, 300), ("network-5", 50, 890), ("network-50", 500, 700)):
        for repetition in (1, 2):
            step = trial(frames(1000, left), load="2000fps", scenario=scenario, repetition=repetition)
            trials.append(beside(step, forwards(offered, offered // 2)))
            wrong = trial(frames(1000, 1), load="1000fps", scenario=scenario, repetition=repetition)
            trials.append(beside(wrong, forwards(1)))
    return trials


def idle_trials(received: int = 895) -> list[TrialResult]:
    return [beside(result, idle()) for result in measured(received, received, load="2000fps", scenario="shared-idle")]


def test_a_curve_rises_with_what_the_neighbours_were_offered_at_the_best_load_of_the_baseline():
    (curve,) = curves(groups_of(*curve_trials(), *idle_trials()))
    assert (curve.victim, str(curve.load), curve.disturbance) == (RAW, "2000fps", "64-byte frames")
    points = [
        (point.scenario, about(point.neighbours_offered_mbps)[0], about(point.throughput_mbps)[::2])
        for point in curve.points
    ]
    assert points == [
        ("shared-idle", 0.0, (0.60144, 2)),
        ("network-5", 0.0336, (0.59808, 2)),
        ("network-50", 0.336, (0.4704, 2)),
        ("network-95", 0.6384, (0.2016, 2)),
    ]
    rest, *_, last = curve.points
    assert rest.neighbours_throughput_mbps is None
    assert about(rest.neighbours_offered_mbps) == (0.0, 0.0, 2)
    assert about(last.neighbours_throughput_mbps)[0] == 0.3192
    # 700 frames lost of each 1,000, 300 not, twice: 600 may be up to 650.03 (Poisson).
    assert about(last.loss_ratio, 4) == (0.7, 0.025, 2)


def test_a_step_without_a_valid_trial_is_left_out_of_its_curve():
    trials = [
        replace(result, reasons=INVALID) if result.spec.scenario in ("network-50", "shared-idle") else result
        for result in (*curve_trials(), *idle_trials())
    ]
    (curve,) = curves(groups_of(*trials))
    assert [point.scenario for point in curve.points] == ["network-5", "network-95"]


def test_without_a_forwarding_neighbour_or_a_baseline_there_is_no_curve():
    forwarding = [result for result in curve_trials() if result.spec.scenario != "dedicated"]
    assert curves(groups_of(*forwarding)) == ()
    assert curves(groups_of(*measured(900, 900, load="2000fps"), *idle_trials())) == ()
    failed = [replace(result, reasons=INVALID) for result in forwarding]
    assert curves(groups_of(*measured(900, 900, load="2000fps"), *idle_trials(), *failed)) == ()


def test_each_kind_of_disturbance_has_a_curve_of_its_own():
    def step(scenario: str, *neighbours: Neighbour) -> TrialResult:
        return beside(trial(frames(1000, 500), scenario=scenario), *neighbours)

    groups = groups_of(
        *measured(900, 900),
        step("shared-idle", idle("a"), idle("b")),
        step("small-50", forwards(500, name="a"), idle("b")),
        step("small-95", forwards(950, name="a", share=95), idle("b")),
        step("large-50", forwards(50, name="a", size=1500), forwards(50, name="b", size=1500)),
        step("mixed-50", forwards(500, name="a"), stress("b")),
        step("alone-50", forwards(500, name="a")),
    )
    found = {curve.disturbance: [point.scenario for point in curve.points] for curve in curves(groups)}
    assert found == {
        "a: 64-byte frames, b: idle": ["shared-idle", "small-50", "small-95"],
        "1500-byte frames": ["shared-idle", "large-50"],
        "a: 64-byte frames, b: stress-ng --cpu 8 --vm 4": ["mixed-50"],
        "64-byte frames": ["alone-50"],
    }


def test_fairness_is_over_the_guests_that_forward():
    def shared(left: int, own: int, repetition: int, *reasons: Reason) -> TrialResult:
        one = trial(frames(1000, left), scenario="network-50", repetition=repetition, reasons=reasons)
        return beside(one, forwards(200, own, name="a"), idle("b"))

    groups = groups_of(shared(1000, 200, 1), shared(1000, 100, 2), shared(0, 200, 3, *INVALID), *measured(10, 20))
    (one,) = fairness(groups)
    assert (one.victim, one.scenario, str(one.load)) == (RAW, "network-50", "1000fps")
    assert about(one.index)[::2] == (0.95, 2)  # the mean of 1 and 0.9: (1 + ½)² ÷ (2 · (1 + ¼)) is 0.9
    assert (one.victim_share.mean, one.victim_share.n) == (1.0, 2)
    assert list(one.neighbour_shares) == ["a"]
    assert (one.neighbour_shares["a"].mean, one.neighbour_shares["a"].n) == (0.75, 2)


def test_the_streams_of_a_guest_are_one_share():
    both = counted(forwards(0), frames(900, 900, "n1"), frames(100, 0, "n2"))
    one = trial(frames(500, 500, "s1"), frames(500, 400, "s2"), scenario="network-50")
    (found,) = fairness(groups_of(beside(one, both)))
    assert found.victim_share == found.neighbour_shares["second"] == Interval(0.9, None, 1)
    assert about(found.index) == (1.0, None, 1)


@pytest.mark.parametrize(
    ("victim", "neighbour"),
    [
        (frames(1000, 0), forwards(500, 0)),
        (frames(0, 0), forwards(500, 500)),
        (frames(1000), counted(forwards(0))),
    ],
)
def test_shares_that_make_no_index_are_left_out(victim, neighbour):
    assert fairness(groups_of(beside(trial(victim, scenario="network-50"), neighbour))) == ()


def test_cpu_time_of_every_guest_and_the_machine_over_all_valid_trials():
    def watched(one: TrialResult, seconds: float, machine: float, **cpu_s: float) -> TrialResult:
        steps_s = {"send": 9.0, "drain": 9.0, "observe": seconds}
        return replace(victim(one, cpu_s=cpu_s), steps_s=steps_s, machine_cpu_s=machine)

    heavy = stress(guest=1.9, host=2.0, load=1.8)
    groups = groups_of(
        watched(beside(trial(frames(10), scenario="cpu-heavy"), heavy), 2.0, guest=0.2, host=0.4, machine=3.0),
        watched(
            beside(trial(frames(10), scenario="cpu-heavy", load="max"), heavy), 1.0, guest=0.3, host=0.6, machine=3.0
        ),
        watched(trial(frames(10), scenario="cpu-heavy", frame_size=500, reasons=INVALID), 1.0, 0.0, guest=9.0),
        watched(trial(frames(10), scenario="cpu-light", reasons=INVALID), 1.0, 0.0, guest=9.0),
        trial(frames(10), machine_cpu_s=0.6, steps_s={"arm": 5.0, "send": 1.0, "drain": 0.5}),
    )
    heavy_use, dedicated = sorted(cpu_use(groups), key=lambda one: one.scenario)

    def means(*intervals: Interval | None) -> list[float | None]:
        return [None if interval is None else round(interval.mean, 9) for interval in intervals]

    assert (heavy_use.uut, heavy_use.scenario) == ("raw", "cpu-heavy")
    assert means(heavy_use.guest, heavy_use.host, heavy_use.machine) == [0.2, 0.4, 2.25]
    (second,) = heavy_use.neighbours
    assert (second.name, second.activity) == ("second", "stress-ng --cpu 8 --vm 4")
    assert means(second.guest, second.host, second.load) == [1.425, 1.5, 1.35]
    assert (dedicated.scenario, dedicated.neighbours) == ("dedicated", ())
    assert means(dedicated.guest, dedicated.host, dedicated.machine) == [None, None, 0.4]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20).filter(any), st.sampled_from([1.0, 1e-300]))
def test_fairness_is_jains_index(shares, unit):
    """Jain, Chiu, Hawe 1984, equation 1, with fractions."""
    exact = Fraction(sum(shares)) ** 2 / (len(shares) * sum(Fraction(share) ** 2 for share in shares))
    assert jain_index([unit * share for share in shares]) == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.parametrize(("shares", "why"), [([], "no shares"), ([0.5, -0.1], "not -0.1"), ([0.0, 0.0], "all shares")])
def test_what_has_no_fairness_is_refused(shares, why):
    with pytest.raises(ValueError, match=why):
        jain_index(shares)
