import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.statistics.sharing import jain_index


@pytest.mark.parametrize(
    ("shares", "index"),
    [
        ([1.0], 1.0),
        ([0.3, 0.3, 0.3], 1.0),
        ([1.0, 0.0], 0.5),
        ([1.0, 1.0, 1.0, 0.0], 0.75),
        ([1.0, 0.5], 0.9),
        ([10, 20, 30], 3600 / (3 * 1400)),
        ([1e-300, 5e-301], 0.9),
    ],
)
def test_examples(shares, index):
    assert jain_index(shares) == pytest.approx(index, rel=1e-12)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20).filter(any))
def test_lies_between_one_of_n_and_all_alike(shares):
    assert 1 / len(shares) - 1e-9 <= jain_index(shares) <= 1 + 1e-9


@pytest.mark.parametrize(("shares", "why"), [([], "no shares"), ([0.5, -0.1], "not -0.1"), ([0.0, 0.0], "all shares")])
def test_what_has_no_index_is_refused(shares, why):
    with pytest.raises(ValueError, match=why):
        jain_index(shares)
