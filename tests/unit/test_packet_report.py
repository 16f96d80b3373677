"""Described packets in reports: their cost, flows, groups that lost frames, changed fields, and labels."""

from dataclasses import replace

import pytest

from netbench.model.frame_size import IMIX, FrameSize
from netbench.model.packet_counts import OTHER_HEADERS, ChangedField, FieldGroups, FlowGroup, PacketCounts, SentPacket
from netbench.model.search import Rfc2544Tests
from netbench.report.caveats import caveats
from netbench.report.figures.packets import COST, FLOWS
from netbench.report.figures.rfc2544 import throughput_by_size_chart
from netbench.report.findings import findings
from netbench.report.model import ReportModel
from netbench.report.section_parts import main_chart
from netbench.report.styles import styles
from netbench.report.tables.packets import changed_fields, costs
from netbench.report.tables.packets import groups as flow_groups
from netbench.report.tables.registry import largest_first
from netbench.statistics.changed_fields import changed_frames
from netbench.statistics.compared_cells import CellSelection
from netbench.statistics.comparison import compare
from netbench.statistics.flow_losses import fairness_of, losses_by_field
from netbench.statistics.groups import group_trials
from netbench.statistics.limits import contradictory_maxima
from netbench.statistics.packet_cost import flow_scaling, packet_costs
from netbench.statistics.search_comparison import compare_searches
from tests.unit.comparison_factory import as_compared
from tests.unit.report_page import page_of
from tests.unit.results_factory import campaign, search_result, stream_counts, trial

VLAN = SentPacket("vlan", "100", 1, "Ether/Dot1Q/IP/UDP")


def trials(uut, size, received, packet=None, *, load="1000fps", counts=None, noise=(0, 1, -1)):
    """Three valid trials of 1,000 frames, of which about `received` arrive."""
    return [
        trial(
            stream_counts(received=received + change, packet=packet, packet_counts=counts),
            uut=uut,
            frame_size=size,
            load=load,
            repetition=number,
            boot=number,
        )
        for number, change in enumerate(noise, start=1)
    ]


def flows(number: int) -> SentPacket:
    return SentPacket(f"{number}-flows", "", number, "Ether/IP/UDP")


ENCAPSULATIONS = campaign(
    [
        *trials("bridge", FrameSize.of(64), 800),
        *trials("bridge", FrameSize.of(64, "vlan"), 600, VLAN),
        *trials("route", FrameSize.of(64), 500),
        *trials("route", FrameSize.of(64, "vlan"), 250, VLAN),
    ],
    uuts=("bridge", "route"),
)
SCALING = campaign(
    [
        *trials("bridge", FrameSize.of(64), 800),
        *(
            result
            for number, received in ((100, 700), (10_000, 500))
            for result in trials("bridge", FrameSize.of(64, f"{number}-flows"), received, flows(number))
        ),
        *trials("bridge", FrameSize.of(64, "vlan"), 600, VLAN),
    ],
    uuts=("bridge",),
)


def model(results) -> ReportModel:
    return ReportModel.of(results)


def test_the_cost_of_a_packet_is_its_maximum_relative_to_plain_frames_of_the_same_uut():
    costs = packet_costs(model(ENCAPSULATIONS).groups)
    ratios = {(cost.best.uut, cost.best.frame_size.packet): cost.frames for cost in costs}
    assert {key: ratio.ratio for key, ratio in ratios.items()} == {
        ("bridge", "vlan"): pytest.approx(0.75),
        ("route", "vlan"): pytest.approx(0.5),
    }
    assert all((ratio.low or 1.0) < (ratio.ratio or 0.0) < (ratio.high or 0.0) for ratio in ratios.values())
    assert all(cost.frames == cost.bits for cost in costs)


def test_the_cost_of_another_frame_size_or_without_plain_frames_is_unknown():
    only_vlan = [*trials("bridge", FrameSize.of(64, "vlan"), 600, VLAN), *trials("bridge", FrameSize.of(128), 600)]
    assert packet_costs(model(campaign(only_vlan)).groups) == ()
    assert COST.requirement(model(campaign(only_vlan, uuts=("bridge",)))) != ""


def test_the_figure_of_costs_has_a_bar_for_each_uut_and_packet_with_its_interval():
    (named,) = COST.build(model(ENCAPSULATIONS))
    (panel,) = named.chart.panels
    assert panel.x.categories == ("vlan",)
    assert [(series.name, round(mark.y)) for series in panel.series for mark in series.marks] == [
        ("bridge", 75),
        ("route", 50),
    ]
    mark = panel.series[0].marks[0]
    assert (mark.low or 100) < 75 < (mark.high or 0)
    numbers = mark.numbers
    assert (numbers["packet"], numbers["frame_size"]) == ("vlan", 64)
    assert numbers["plain_fps"] == pytest.approx(800)
    assert numbers["plain_mbps"] == pytest.approx(800 * 84 * 8 / 1e6)


def test_flow_scaling_joins_packets_with_the_same_headers_only():
    (of,) = flow_scaling(model(SCALING).groups)
    assert of.headers == "Ether/IP/UDP"
    assert [(point.flows, point.best.frame_size.packet) for point in of.points] == [
        (1, ""),
        (100, "100-flows"),
        (10_000, "10000-flows"),
    ]
    (named,) = FLOWS.build(model(SCALING))
    (panel,) = named.chart.panels
    assert panel.x.logarithmic
    assert panel.x.low > 0
    assert [mark.x for mark in panel.marks] == [1, 100, 10_000]
    assert FLOWS.requirement(model(ENCAPSULATIONS)) == "no UUT was measured with several numbers of flows"


def test_flow_scaling_counts_the_flows_of_a_stream_and_not_those_of_answers_with_other_headers():
    results = []
    for number in (100, 10_000):
        forth = stream_counts("forth", packet=flows(number))
        back = stream_counts("back", packet=flows(number)._replace(flows=1, headers="Ether/IP/UDP/VXLAN/Ether/IP/UDP"))
        results.append(trial(forth, back, uut="end", frame_size=FrameSize.of(200, f"{number}-flows")))
    (of,) = flow_scaling(model(campaign(results, uuts=("end",))).groups)
    assert (of.headers, [point.flows for point in of.points]) == ("Ether/IP/UDP", [100, 10_000])


GROUPS = (FieldGroups("Dot1Q.vlan", 4, (FlowGroup("10", 250, 200), FlowGroup("30", 250, 100))),)


@pytest.mark.parametrize(
    ("field", "index"),
    [
        (FieldGroups("f", 4, ()), 1.0),
        # Jain's index of 1, 1, 1 and 0: 3² ÷ (4 · 3).
        (FieldGroups("f", 4, (FlowGroup("1", 10, 0),)), 0.75),
        (FieldGroups("f", 2, (FlowGroup("1", 10, 5),)), 1.5**2 / (2 * 1.25)),
        (FieldGroups("f", 1, (FlowGroup("1", 10, 0),)), None),
    ],
)
def test_fairness_is_jains_index_over_all_groups(field, index):
    assert fairness_of(field) == (None if index is None else pytest.approx(index))


def test_losses_of_groups_are_added_up_over_trials():
    lossy = PacketCounts(4, groups=GROUPS)
    results = trials("bridge", FrameSize.of(64, "vlan"), 800, VLAN, counts=lossy, noise=(0, 0))
    (loss,) = losses_by_field(model(campaign(results)).groups)
    assert (loss.field, loss.groups, loss.lost) == ("Dot1Q.vlan", 4, 400)
    assert [(of.values, of.sent, of.lost, of.trials) for of in loss.lossy] == [("30", 500, 300, 2), ("10", 500, 100, 2)]
    assert loss.fairness is not None
    assert loss.fairness.mean == pytest.approx((0.8 + 0.4 + 2) ** 2 / (4 * (0.64 + 0.16 + 2)))


CHANGED = PacketCounts(
    1,
    changed_frames=1000,
    changed=(
        ChangedField("IP.ttl", 1000, "64", "63", "64"),
        ChangedField("IP.tos", 3),
        ChangedField("IP.chksum", 1000),
    ),
)
REWRITTEN = campaign(
    trials("bridge", FrameSize.of(64, "vlan"), 1000, VLAN, counts=CHANGED, noise=(0,)), uuts=("bridge",)
)


def test_changed_fields_are_a_caveat_and_no_reason_against_a_trial():
    groups = model(REWRITTEN).groups
    assert [(of.stream, of.name, of.frames, of.received) for of in changed_frames(groups)] == [
        ("s1", "IP.ttl", 1000, 1000),
        ("s1", "IP.tos", 3, 1000),
    ]
    text, anchor = caveats(REWRITTEN, groups)[0]
    assert anchor == "changed-fields"
    assert text.startswith("(1) Changed headers of vlan frames through bridge: IP.ttl arrived as sent (64) in 1,000 of")
    assert "frames, not as 63" in text
    assert "IP.tos differs from the expected value in 3 of 1,000 frames" in text
    assert len(groups[0].valid) == 1


def test_other_headers_than_the_expected_ones_are_a_caveat_about_headers_and_not_about_a_field():
    changed = ChangedField(OTHER_HEADERS, 7, "Ether/IP/UDP", "Ether/IP/UDP", "Ether/Dot1Q/IP/UDP")
    counts = PacketCounts(1, changed_frames=7, changed=(changed,))
    tested = campaign(
        trials("bridge", FrameSize.of(64, "vlan"), 1000, VLAN, counts=counts, noise=(0,)), uuts=("bridge",)
    )
    text, anchor = caveats(tested, model(tested).groups)[0]
    assert anchor == "changed-fields"
    assert "7 of 1,000 frames arrived as Ether/Dot1Q/IP/UDP, not as Ether/IP/UDP" in text


CAUSES = [
    (("184", "0", "184"), True, "IP.tos arrived as sent (184) in 6 of 2,000 frames, but `expect` has 0: correct"),
    (("64", "63", "64"), False, "IP.tos arrived as sent (64) in 6 of 2,000 frames, not as 63: correct the UUT, or add"),
    (
        ("184", "184", "0"),
        False,
        "the UUT changed IP.tos from 184 to 0 in 6 of 2,000 frames: add 0 to `expect`",
    ),
    (("1", "2", "3"), True, "IP.tos arrived as 3, not as 2, in 6 of 2,000 frames"),
    (("", "2", "3"), True, "IP.tos arrived as 3, not as 2, in 6 of 2,000 frames"),
    (("", "", ""), False, "IP.tos differs from the expected value in 6 of 2,000 frames"),
]


@pytest.mark.parametrize(("values", "has_expect", "text"), CAUSES)
def test_caveats_name_the_cause_of_a_change_and_all_uuts_that_share_it(values, has_expect, text):
    counts = PacketCounts(1, changed_frames=3, changed=(ChangedField("IP.tos", 3, *values),))
    both = [
        result
        for uut in ("bridge", "route")
        for result in trials(uut, FrameSize.of(64, "nat"), 1000, VLAN, counts=counts, noise=(0,))
    ]
    results = with_packets(campaign(both), nat={"headers": "Ether()", **({"expect": "Ether()"} if has_expect else {})})
    found, _ = caveats(results, model(results).groups)[0]
    assert f"Changed headers of nat frames through bridge and route: {text}" in found


def test_caveats_beyond_the_first_are_counted_with_the_names_of_their_sections():
    """Five packets change in different ways, and there is one repetition."""
    results = []
    for number in range(5):
        counts = PacketCounts(1, changed_frames=3, changed=(ChangedField("IP.tos", 3, "0", "0", str(number + 1)),))
        results += trials("bridge", FrameSize.of(64, f"p{number}"), 1000, VLAN, counts=counts, noise=(0,))
    *three, (more, _) = caveats(campaign(results), model(campaign(results)).groups)
    assert [text[:27] for text, _ in three] == [f"({n + 1}) Changed headers of p{n} f" for n in range(3)]
    assert more == "3 more caveats: see Changed header fields, Highest throughput and Results."


def test_a_table_of_changed_fields_has_values_and_streams():
    """Each direction changes other fields. Checksums that other fields explain have no row, other ones do."""
    forth = (ChangedField("IP.src", 9, "198.18.1.2", "192.0.2.1", "192.0.2.9"), ChangedField("IP.chksum", 9))
    back = (
        ChangedField("IP.dst", 5, "", "198.18.1.2", "192.0.2.9"),
        ChangedField("IP.chksum", 6, "", "0x0001", "0x0002"),
    )
    streams = [
        stream_counts(
            name, received=1000, packet=VLAN, packet_counts=PacketCounts(1, changed_frames=9, changed=changed)
        )
        for name, changed in (("forth", forth), ("back", back))
    ]
    results = campaign([trial(*streams, uut="nat", frame_size=FrameSize.of(64, "vlan"))])
    (shown,) = changed_fields(model(results))
    titles = [column.title for column in shown.columns]
    assert titles[-8:] == ["Stream", "Field", "Sent", "Expected", "Arrived (first)", "Frames", "Received", "Share"]
    assert [[cell.text for cell in row.cells][-8:] for row in shown.rows] == [
        ["forth", "IP.src", "198.18.1.2", "192.0.2.1", "192.0.2.9", "9", "1,000", "0.9 %"],
        ["back", "IP.dst", "–", "198.18.1.2", "192.0.2.9", "5", "1,000", "0.5 %"],
        ["back", "IP.chksum", "–", "0x0001", "0x0002", "6", "1,000", "0.6 %"],
    ]


def test_the_page_labels_packets_and_has_their_sections():
    page = page_of(ENCAPSULATIONS)
    assert "64-byte vlan frames" in page.source
    assert "packet-cost" in page.ids
    assert "flow-groups" not in page.ids
    described = trials(
        "bridge", FrameSize.of(64, "vlan"), 800, VLAN, counts=replace(CHANGED, groups=GROUPS), noise=(0,)
    )
    page = page_of(campaign(described, uuts=("bridge",)))
    assert {"flow-groups", "changed-fields"} <= set(page.ids)
    for text in ("Dot1Q.vlan", "Fairness index", "IP.ttl", "Jain, Chiu, Hawe 1984"):
        assert text in page.text
    plain = page_of(campaign(trials("bridge", FrameSize.of(64), 800), uuts=("bridge",)))
    assert {"packet-cost", "flows", "flow-groups", "changed-fields"}.isdisjoint(plain.ids)


def test_a_mix_is_described_once_however_many_packets_it_has():
    results = campaign([*trials("raw", IMIX, 800), *trials("raw", IMIX.with_packet("vlan"), 600, VLAN)])
    assert page_of(results).text.count("CUSTOM IMIX") == 1


def test_the_graph_of_rfc_2544_has_a_line_for_each_packet_of_a_uut():
    measured = [(64, "", 900.0), (64, "vlan", 700.0), (512, "", 800.0), (512, "vlan", 600.0)]
    rows = [
        (search_result(frame_size=FrameSize.of(size, packet), lower=fps), Rfc2544Tests(1e6))
        for size, packet, fps in measured
    ]
    chart = throughput_by_size_chart(rows, styles(["raw"], {}))
    (panel,) = chart.panels
    drawn = {series.name: [(mark.x, mark.y) for mark in series.marks] for series in panel.series}
    assert drawn == {"raw, plain": [(64, 0.9), (512, 0.8)], "raw, vlan": [(64, 0.7), (512, 0.6)]}
    assert len({series.style.dash for series in panel.series}) == 2
    assert {"plain", "vlan"} <= {entry.name for entry in chart.legend}


def test_only_maxima_of_one_packet_contradict_each_other():
    """Larger frames with an expensive packet may well be faster than small ones with another."""
    slow, fast = trials("raw", FrameSize.of(64, "vxlan"), 300, VLAN), trials("raw", FrameSize.of(512), 900)
    assert contradictory_maxima(model(campaign([*slow, *fast])).groups, {}) == ()
    same = trials("raw", FrameSize.of(512, "vxlan"), 900, VLAN)
    (contradiction,) = contradictory_maxima(model(campaign([*slow, *same])).groups, {})
    assert "64-byte vxlan frames" in contradiction.text


@pytest.mark.parametrize(
    ("sizes", "selected"),
    [
        ((), ["64", "64 vlan", "512 vlan"]),
        (("64",), ["64", "64 vlan"]),
        (("64 vlan",), ["64 vlan"]),
        (("*vlan",), ["64 vlan", "512 vlan"]),
        (("512",), ["512 vlan"]),
    ],
)
def test_a_comparison_selects_a_size_with_any_packet_or_with_one(sizes, selected):
    every = (FrameSize.of(64), FrameSize.of(64, "vlan"), FrameSize.of(512, "vlan"))
    selection = CellSelection(sizes=sizes)
    assert [str(size) for size in every if selection.includes("raw", "dedicated", size)] == selected


def test_a_comparison_matches_cells_of_the_same_packet():
    base = campaign([*trials("raw", FrameSize.of(64), 800), *trials("raw", FrameSize.of(64, "vlan"), 600, VLAN)])
    new = campaign([*trials("raw", FrameSize.of(64, "vlan"), 600, VLAN), *trials("raw", FrameSize.of(64, "gre"), 500)])
    (comparison,) = compare(as_compared(base, "base"), [as_compared(new, "new")])
    assert {str(difference.place.frame_size) for difference in comparison.differences} == {"64 vlan"}


def with_packets(results, **packets):
    return replace(results, manifest={**results.manifest, "packets": packets})


CELLS = campaign([*trials("raw", FrameSize.of(64), 800), *trials("raw", FrameSize.of(64, "mine"), 600)])


@pytest.mark.parametrize(
    ("base", "new", "compared", "why"),
    [
        ({"headers": "Ether()/IP()"}, {"headers": "Ether()/IP()"}, {"64", "64 mine"}, None),
        (
            {"headers": "Ether()/IP()"},
            {"headers": "Ether()/IPv6()"},
            {"64"},
            "packet mine: Ether()/IP() in base; Ether()/IPv6() in new",
        ),
        (
            {"headers": "Ether()/IP()", "vary": {"IP.id": {"list": [1, 2]}}},
            {"headers": "Ether()/IP()"},
            {"64"},
            "packet mine: vary {IP.id: {list: [1, 2]}} in base; no vary in new",
        ),
        (None, {"headers": "Ether()/IP()"}, {"64", "64 mine"}, None),  # results of an earlier version
    ],
)
def test_packets_of_one_name_are_compared_only_if_their_descriptions_are_equal(base, new, compared, why):
    sides = [with_packets(CELLS, **({"mine": packet} if packet else {})) for packet in (base, new)]
    (comparison,) = compare(as_compared(sides[0], "base"), [as_compared(sides[1], "new")])
    assert {str(difference.place.frame_size) for difference in comparison.differences} == compared
    assert {(cell.why, cell.kind.value) for cell in comparison.left_out if getattr(cell.place, "load", None)} == (
        {(why, "other-packet")} if why else set()
    )


def test_limits_of_different_packets_are_not_compared():
    found = search_result(frame_size=FrameSize.of(64, "mine"))
    sides = [
        with_packets(replace(CELLS, searches=(found,)), mine={"headers": headers})
        for headers in ("Ether()/IP()", "Ether()/IPv6()")
    ]
    comparison = compare_searches("base", sides[0], "new", sides[1])
    assert not comparison.differences
    assert [cell.kind.value for cell in comparison.left_out] == ["other-packet"]


def test_packets_are_in_the_order_of_the_profile_in_results():
    names = ["1k-flows", "10k-flows", "", "100k-flows"]
    results = campaign([trial for name in sorted(names) for trial in trials("raw", FrameSize.of(64, name), 600)])
    ordered = group_trials(with_packets(results, **dict.fromkeys(names)))
    assert [group.frame_size.packet for group in ordered] == names
    assert [item.frame_size.packet for item in largest_first(ordered, lambda item: item.frame_size)] == names


HEADLINES = [
    # Plain frames first, however small others are.
    ([("bridge", 128, "", 800), ("bridge", 64, "a", 700)], "bridge forwards ", "128-byte frames", ""),
    # The first packet of the profile that all UUTs carry; the alphabetically first one is not.
    (
        [("bridge", 64, "b", 800), ("bridge", 64, "a", 700), ("route", 64, "b", 600)],
        "bridge forwards most",
        "64-byte b frames",
        "Other packets: a.",
    ),
    (
        [("bridge", 64, "b", 800), ("bridge", 64, "c", 700), ("route", 64, "c", 600), ("route", 64, "a", 600)],
        "bridge forwards most",
        "64-byte c frames",
        "Other packets: b and a.",
    ),
    # No packet is common: the first one, and the UUT without it is named.
    (
        [("bridge", 64, "b", 800), ("route", 64, "a", 600)],
        "bridge forwards ",
        "64-byte b frames",
        "No results of route with b frames. Other packets: a.",
    ),
]


@pytest.mark.parametrize(("measured", "lead", "frames", "others"), HEADLINES)
def test_the_headline_is_about_plain_frames_or_the_first_packet_that_all_uuts_carry(measured, lead, frames, others):
    results = campaign(
        [
            result
            for uut, size, name, received in measured
            for result in trials(uut, FrameSize.of(size, name), received)
        ],
        uuts=("bridge", "route"),
    )
    results = with_packets(results, **dict.fromkeys(("b", "c", "a")))
    (text,) = [finding.text for finding in findings(results) if finding.topic == "Throughput"]
    assert text.startswith(lead)
    assert text.endswith(f"Conditions: {frames}, no neighbour, n = 3 on 3 boots. {others}".rstrip())


def test_a_lower_bound_of_some_packets_only_names_them():
    """All plain frames arrive, so that the load was the limit; the UUT limits those with a tag."""
    results = campaign(
        [
            *trials("bridge", FrameSize.of(64), 1000, noise=(0, 0)),
            *trials("bridge", FrameSize.of(64, "vlan"), 600, VLAN),
        ]
    )
    texts = [text for text, _ in caveats(results, model(results).groups)]
    assert any("Throughput of bridge (with plain frames) is a lower bound" in text for text in texts), texts


def test_wide_intervals_of_some_packets_name_them():
    """Only the tagged frames vary beside the neighbour."""

    def beside(size, received, noise):
        return [
            replace(result, spec=replace(result.spec, scenario="heavy"))
            for result in trials("bridge", size, received, noise=noise)
        ]

    plain, tagged = FrameSize.of(64), FrameSize.of(64, "vlan")
    results = campaign(
        [
            *(result for size in (plain, tagged) for result in trials("bridge", size, 800)),
            *beside(plain, 800, (0, 1, -1)),
            *beside(tagged, 600, (0, 150, -150)),
        ]
    )
    texts = [text for text, _ in caveats(results, model(results).groups)]
    assert any("Intervals of bridge (with vlan frames) are wider than" in text for text in texts), texts


@pytest.mark.parametrize(
    ("noise", "text"),
    [
        ((0,), "not measurable: one repetition"),
        ((-500, 0, 500), "too noisy to tell (n = 3)"),
        ((0, 1, -1), "−25.0 % ("),
    ],
)
def test_the_table_of_costs_says_what_the_data_permits(noise, text):
    results = [*trials("bridge", FrameSize.of(64), 800), *trials("bridge", FrameSize.of(64, "vlan"), 600, VLAN)]
    if noise != (0, 1, -1):
        results = [
            *trials("bridge", FrameSize.of(64), 800, noise=noise),
            *trials("bridge", FrameSize.of(64, "vlan"), 600, VLAN, noise=noise),
        ]
    (shown,) = costs(model(campaign(results)))
    (row,) = shown.rows
    assert [cell.text[: len(text)] for cell in row.cells[-2:]] == [text, text]


def test_groups_that_lost_frames_are_shown_as_part_of_all_groups():
    lossy = FieldGroups("IP.src", 100, tuple(FlowGroup(f"198.18.0.{n}", 10, 9 - n // 9) for n in range(25)))
    counts = PacketCounts(100, groups=(lossy,))
    (shown,) = flow_groups(model(campaign(trials("bridge", FrameSize.of(64, "a"), 800, VLAN, counts=counts))))
    assert shown.caption.endswith("IP.src – 20 of 100 groups, most lost frames first")
    assert len(shown.rows) == 20


PACKETS = [
    (
        [("", 800), ("vlan", 600), ("ipv6", 799), ("gre", 400)],
        (0, 1, -1),
        "gre costs most: it cuts the peak throughput of raw by 50 % (50 … 50 %), compared with plain frames. vlan: of "
        "raw by 25 % (25 … 25 %). raw: no significant change with ipv6 (changes above 1 % are excluded).",
    ),
    ([("", 800), ("vlan", 600)], (0, 1, -1), "vlan cuts the peak throughput of raw by 25 % (25 … 25 %), compared"),
    (
        [("", 800), ("ipv6", 799), ("vlan", 1000)],
        (0, 1, -1),
        "No significant cost of a packet was found. raw: no significant change with ipv6 (changes above 1 % are "
        "excluded); vlan ≥ 1.25 × plain frames",
    ),
    ([("", 800), ("vlan", 700)], (0,), "The cost of a packet could not be measured. raw: vlan "),
    ([("ipv6", 800), ("vlan", 700)], (0, 1, -1), None),
]


@pytest.mark.parametrize(("received", "noise", "text"), PACKETS)
def test_the_cost_of_packets_is_a_finding(received, noise, text):
    results = campaign(
        [trial for name, count in received for trial in trials("raw", FrameSize.of(64, name), count, noise=noise)]
    )
    found = [finding for finding in findings(results) if finding.topic == "Packets"]
    assert [finding.text[: len(text or "")] for finding in found] == ([text] if text else [])


@pytest.mark.parametrize(
    ("packets", "chart"),
    [
        ({"": "plain", "vlan": {"headers": "Ether()/Dot1Q()/IP()/UDP()"}}, "packet-cost-0"),
        ({"": "plain", "9-flows": {"headers": "Ether()/IP()/UDP()", "vary": {}}}, "flows-0"),
        ({"vlan": {"headers": "Ether()/Dot1Q()/IP()/UDP()"}}, "maximum"),
        ({}, "maximum"),
    ],
)
def test_the_first_screen_compares_packets_if_a_profile_has_several(packets, chart):
    names = packets or {"": "plain"}
    every = [
        trial
        for name in names
        for trial in trials("raw", FrameSize.of(64, name), 600, flows(9) if "flows" in name else None)
    ]
    shown = main_chart(model(replace(campaign(every), manifest={**campaign(every).manifest, "packets": packets})))
    assert shown is not None
    assert f'id="figure-{chart}' in shown.html
