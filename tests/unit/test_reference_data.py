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


def test_the_source_can_be_found(paper: PublishedPaper) -> None:
    assert paper.doi == "10.1007/978-3-642-20757-0_31"
    assert re.search(r"Schlosser.*Performance Comparison of Hardware Virtualization Platforms.*393–405", paper.citation)
    assert "270 Mbit/s" in paper.on_figure(5)
    assert paper.on_figure(2) == ""


