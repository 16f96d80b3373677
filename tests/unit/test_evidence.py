"""Growth of counters: wrapped counters go on; growth of reset counters and of another NIC is unknown."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.linux.counters.counting_points import NicCounters
from netbench.trial.observation import NicDelta, growth


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**31 - 1))
def test_a_counter_of_32_bits_grows_by_what_was_counted_though_it_begins_again(before, counted):
    assert growth(before, (before + counted) % 2**32) == counted


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**31 - 1))
def test_a_counter_that_does_not_begin_again_grows_by_the_difference(before, counted):
    assert growth(before, before + counted) == counted


@pytest.mark.parametrize(
    ("before", "after", "grown"),
    [
        (5, 5, 0),
        (2**32 - 1, 4, 5),  # a driver that keeps 32 bits of the 64 that the kernel shows
        (1000, 999, None),
        (2**31 - 1, 0, None),  # less than half full: it was reset
        (2**63 + 2**40, 10, None),
        (None, 5, None),
        (5, None, None),
    ],
)
def test_what_cannot_be_known_is_not_guessed(before, after, grown):
    assert growth(before, after) == grown


COUNTERS = NicCounters(9, 9, 9, 9, 9, 9, up=True, carrier_changes=7, mac="02:00:00:00:00:01", index=9, master=3)


def test_a_link_whose_changes_are_not_counted_did_not_change_0_times():
    silent = replace(COUNTERS, carrier_changes=None)
    for before, after in ((silent, silent), (COUNTERS, silent), (silent, COUNTERS)):
        assert NicDelta.between(before, after).carrier_changes is None


def test_growth_between_two_readings():
    before = replace(COUNTERS, rx=1, tx=2, rx_dropped=3, tx_dropped=4, rx_errors=5, tx_errors=6)
    after = replace(COUNTERS, rx=11, tx=22, rx_dropped=33, tx_dropped=44, rx_errors=55, tx_errors=66)
    delta = NicDelta.between(before, after)
    assert delta == NicDelta(10, 20, 30, 40, 50, 60, up=True, carrier_changes=0, trustworthy=True)


def test_frames_for_another_mac_address_count_from_0_where_ip_omitted_them():
    before, after = replace(COUNTERS, rx_otherhost_dropped=None), replace(COUNTERS, rx_otherhost_dropped=7)
    assert NicDelta.between(before, after).rx_otherhost_dropped == 7
    assert NicDelta.between(before, before).rx_otherhost_dropped is None
    assert NicDelta.between(after, replace(after, rx_otherhost_dropped=2)).rx_otherhost_dropped is None


@pytest.mark.parametrize(("at_readiness", "changed"), [(COUNTERS.mac, False), ("", False), ("02:00:00:00:00:77", True)])
def test_the_mac_address_is_compared_with_that_at_readiness(at_readiness, changed):
    delta = NicDelta.between(COUNTERS, COUNTERS, at_readiness)
    assert delta.changed_mac == ((at_readiness, COUNTERS.mac) if changed else None)


@pytest.mark.parametrize(
    "change",
    [
        *({name: 8} for name in ("rx", "tx", "rx_dropped", "tx_dropped", "rx_errors", "tx_errors")),
        {"index": 10},
        {"mac": "02:00:00:00:00:02"},
        {"master": 0},
    ],
)
def test_a_counter_that_went_backwards_or_is_that_of_another_nic_is_not_trusted(change):
    assert not NicDelta.between(COUNTERS, replace(COUNTERS, **change)).trustworthy


@pytest.mark.parametrize(("was_up", "is_up", "up"), [(True, True, True), (False, True, False), (True, False, False)])
def test_a_link_is_up_that_was_up_before_and_after(was_up, is_up, up):
    before = replace(COUNTERS, up=was_up, carrier_changes=3)
    delta = NicDelta.between(before, replace(before, up=is_up, carrier_changes=5))
    assert (delta.up, delta.carrier_changes) == (up, 2)
