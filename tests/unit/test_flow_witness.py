"""When a tool and the wire disagree."""

import pytest

from netbench.model.flow_witness import DisagreementKind, FlowFigures, disagreement, rank_shift

KINDS = DisagreementKind
US = 1000

# name: (tool, wire, kinds that disagree)
CASES = {
    "nothing known": (FlowFigures(), FlowFigures(), []),
    "known by one": (FlowFigures(5, 5, {50: 1.0}), FlowFigures(), []),
    "equal": (FlowFigures(10**6, 0, {50: 5.0}), FlowFigures(10**6, 0, {50: 5.0}), []),
    "0.1 % more": (FlowFigures(1_001_000), FlowFigures(1_000_000), []),
    "above 0.1 %": (FlowFigures(1_001_001), FlowFigures(1_000_000), [KINDS.BYTES_TO_SERVER]),
    "below by more than 0.1 %": (FlowFigures(998_999), FlowFigures(1_000_000), [KINDS.BYTES_TO_SERVER]),
    "the other direction": (FlowFigures(None, 1), FlowFigures(None, 1_000_000), [KINDS.BYTES_TO_CLIENT]),
    "bytes that the wire has not": (FlowFigures(1), FlowFigures(0), [KINDS.BYTES_TO_SERVER]),
    "50 µs": (FlowFigures(percentiles_ns={50: 50 * US}), FlowFigures(percentiles_ns={50: 0}), []),
    "above 50 µs": (
        FlowFigures(percentiles_ns={50: 50 * US + 1}),
        FlowFigures(percentiles_ns={50: 0}),
        [KINDS.PERCENTILE],
    ),
    "1 % and 50 µs": (FlowFigures(percentiles_ns={99: 10_150 * US}), FlowFigures(percentiles_ns={99: 10_000 * US}), []),
    "86 ms where 7.5 ms are true": (
        FlowFigures(percentiles_ns={50: 86_000 * US, 99: 1.0}),
        FlowFigures(percentiles_ns={50: 7500 * US, 99.9: 5.0}),
        [KINDS.PERCENTILE],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_disagreements(name):
    tool, wire, kinds = CASES[name]
    assert [found.kind for found in disagreement(tool=tool, wire=wire)] == kinds


@pytest.mark.parametrize(
    ("tool", "wire", "text"),
    [
        (
            FlowFigures(2_000_000),
            FlowFigures(1_000_000),
            "bytes to the server: 2,000,000 bytes by the tool, 1,000,000 bytes on the wire "
            "(allowed difference: 1,000 bytes)",
        ),
        (
            FlowFigures(percentiles_ns={99.9: 86_000 * US}),
            FlowFigures(percentiles_ns={99.9: 7500 * US}),
            "p99.9: 86,000 µs by the tool, 7,500 µs on the wire (allowed difference: 125 µs)",
        ),
    ],
)
def test_both_figures_are_shown(tool, wire, text):
    assert [str(found) for found in disagreement(tool=tool, wire=wire)] == [text]


@pytest.mark.parametrize(
    ("of_tool", "on_wire", "rank", "shift"),
    [
        (3000, 3000, 2970, 1),
        (3003, 3000, 2970, 3),
        (2990, 3000, 2970, 3),  # 10 % of the 30 requests beyond
        (9990, 10_000, 9990, 1),  # a tool that omits all beyond the percentile
        (9990, 10_000, 9900, 10),
        (8000, 10_000, 9900, 10),  # 0.1 % of all
        (10_000, 10_000, 10_000, 1),
        (3, 3, 2, 0),
        (4, 3, 2, 1),
    ],
)
def test_the_rank_of_a_percentile_shifts_by_the_difference_in_requests(of_tool, on_wire, rank, shift):
    assert rank_shift(of_tool, on_wire, rank) == shift
