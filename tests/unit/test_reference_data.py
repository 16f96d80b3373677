import re

import pytest

from netbench.report.published import PublishedPaper, PublishedTable, schlosser2011


@pytest.fixture(scope="module")
def paper() -> PublishedPaper:
    return schlosser2011()


# Typed from the printed tables a second time, column by column, where the data file goes row by row.
PRINTED_COLUMNS = [
    (1, "KVM", "light", {64: "4.2", 500: "5.5", 1000: "5.1", 1500: "0.0"}),
    (1, "OpenVZ", "heavy", {64: "-18.2", 500: "-11.4", 1000: "0.0", 1500: "0.0"}),
    (1, "VM-E1000", "light", {64: "-2.7", 500: "-4.4", 1000: "0.0", 1500: "0.0"}),
    (1, "VM-VMXNET3", "heavy", {64: "-0.6", 500: "-0.1", 1000: "0.0", 1500: "0.0"}),
    (1, "Xen", "light", {64: "6.8", 500: "3.7", 1000: "0.8", 1500: "0.0"}),
    (1, "VirtualBox", "heavy", {64: "2.0", 500: "-4.0", 1000: "-4.8", 1500: "2.0"}),
    (2, "raw", "out", {1500: "153.1", 1000: "153.0", 500: "153.0", 64: "153.0"}),
    (2, "OpenVZ", "out", {1500: "72.1", 1000: "72.1", 500: "68.1", 64: "62.5"}),
    (2, "Xen", "out", {1500: "36.8", 1000: "36.6", 500: "36.1", 64: "35.4"}),
    (2, "VirtualBox", "out", {1500: "36.7", 1000: "36.0", 500: "36.2", 64: "36.8"}),
    (3, "raw", "in", {1500: "275.8", 1000: "275.6", 500: "275.9", 64: "274.9"}),
    (3, "KVM", "out", {1500: "63.2", 1000: "61.3", 500: "60.8", 64: "64.6"}),
    (3, "OpenVZ", "in", {1500: "127.0", 1000: "127.0", 500: "125.9", 64: "124.4"}),
    (3, "VM-E1000", "in", {1500: "126.6", 1000: "126.7", 500: "126.6", 64: "126.6"}),
    (3, "VM-VMXNET3", "out", {1500: "268.3", 1000: "267.6", 500: "267.5", 64: "268.4"}),
    (3, "VirtualBox", "out", {1500: "42.1", 1000: "41.5", 500: "40.2", 64: "42.4"}),
]


def column(table: PublishedTable, uut: str, name: str) -> dict[int, float]:
    """The numbers of a UUT by frame size."""
    first = table.uuts.index(uut) * len(table.columns)
    return {size: float(numbers[first + list(table.columns).index(name)]) for size, numbers in table.rows.items()}


@pytest.mark.parametrize(("table", "uut", "name", "printed"), PRINTED_COLUMNS)
def test_numbers_are_those_of_the_paper(
    paper: PublishedPaper, table: int, uut: str, name: str, printed: dict[int, str]
) -> None:
    assert {size: f"{number:.1f}" for size, number in column(paper.tables[table], uut, name).items()} == printed


def test_tables_are_laid_out_as_printed(paper: PublishedPaper) -> None:
    guests = ["KVM", "OpenVZ", "VM-E1000", "VM-VMXNET3", "Xen", "VirtualBox"]
    layouts = {
        number: (list(table.uuts), table.unit, table.share, list(table.columns), list(table.rows))
        for number, table in paper.tables.items()
    }
    assert layouts == {
        1: (guests, "%", None, ["light", "heavy"], [64, 500, 1000, 1500]),
        2: (["raw", *guests], "Mbit/s", 50, ["in", "out"], [1500, 1000, 500, 64]),
        3: (["raw", *guests], "Mbit/s", 95, ["in", "out"], [1500, 1000, 500, 64]),
    }
    for table in paper.tables.values():
        assert {len(numbers) for numbers in table.rows.values()} == {2 * len(table.uuts)}


def test_no_second_guest_forwards_more_than_it_was_offered_which_is_the_share(paper: PublishedPaper) -> None:
    half, nearly_all = paper.tables[2], paper.tables[3]
    for uut in half.uuts:
        for table in (half, nearly_all):
            offered, received = column(table, uut, "in"), column(table, uut, "out")
            assert all(0 < received[size] <= offered[size] for size in offered)
        assert 1.7 < column(nearly_all, uut, "in")[64] / column(half, uut, "in")[64] < 2.0


def test_the_source_can_be_found(paper: PublishedPaper) -> None:
    assert paper.doi == "10.1007/978-3-642-20757-0_31"
    assert re.search(r"Schlosser.*Performance Comparison of Hardware Virtualization Platforms.*393–405", paper.citation)
    assert "270 Mbit/s" in paper.on_figure(5)
    assert paper.on_figure(2) == ""


def lost_percent(paper: PublishedPaper, table: int, uut: str, size: int) -> float:
    offered = column(paper.tables[table], uut, "in")[size]
    return 100 * (1 - column(paper.tables[table], uut, "out")[size] / offered)


def test_what_is_reported_of_the_tables_is_what_their_numbers_say(paper: PublishedPaper) -> None:
    half, nearly_all = paper.tables[2], paper.tables[3]
    ratios = [
        column(nearly_all, uut, "in")[size] / column(half, uut, "in")[size] for uut in half.uuts for size in half.rows
    ]
    assert f"from {min(ratios):.2f} (OpenVZ) to {max(ratios):.2f} (KVM, Xen, VirtualBox)" in half.about
    assert half.about == nearly_all.about
    assert f"loses {lost_percent(paper, 2, 'OpenVZ', 64):.0f} %" in paper.on_table(2)
    assert round(lost_percent(paper, 3, "OpenVZ", 64)) == 50
    assert "124.4 Mbit/s offered and 62.7 forwarded" in paper.on_table(3)
    # Table 3 contradicts the text's 20 %, and that the bare host forwards everything.
    assert [round(lost_percent(paper, 3, uut, 64)) for uut in ("VM-VMXNET3", "raw")] == [2, 2]
    assert "contradicts" in paper.on_figure(5)
    assert {table.sources for table in paper.tables.values()} == {1}
