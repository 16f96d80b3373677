"""How evenly guests get what they ask for."""

from collections.abc import Sequence


def jain_index(shares: Sequence[float]) -> float:
    """Jain's fairness index (Σx)² ÷ (n · Σx²) of what each of n guests got, x_i = throughput ÷ offered of guest i.

    1 when all got the same share, k/n when k of them share alike and the others get nothing (Jain, Chiu, Hawe 1984,
    "A Quantitative Measure of Fairness and Discrimination for Resource Allocation in Shared Computer Systems",
    DEC-TR-301). ValueError for no shares, a negative one, or none above 0: of nothing there is no fair part.
    """
    if not shares:
        raise ValueError("no shares, no fairness")
    if min(shares) < 0:
        raise ValueError(f"a share is 0 or more, not {min(shares)}")
    largest = max(shares)
    if largest == 0:
        raise ValueError("all shares are 0: there is nothing to share")
    parts = [share / largest for share in shares]  # the index does not depend on the unit
    return sum(parts) ** 2 / (len(parts) * sum(part**2 for part in parts))
