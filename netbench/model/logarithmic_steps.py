"""Steps of a logarithmic scale, by which very many integers are counted. It imports next to nothing.

Each doubling is divided into 2^STEP_BITS steps of equal width. The middle of a step differs from any number in it by at
most 2^-(STEP_BITS + 1), 0.05 %, of that number; below 2^(STEP_BITS + 1), steps are single integers.
"""

from math import frexp

STEP_BITS = 10
_STEPS = 1 << STEP_BITS


def step_of(value: int) -> int:
    """Return the number of a value's step: 1 for 1, 0 for 0, and for -x minus that of x."""
    if value <= 0:
        return -step_of(-value) if value else 0
    part, doubling = frexp(value)  # part is in [0.5, 1)
    return (doubling - 1) * _STEPS + int(part * 2 * _STEPS) - _STEPS + 1


def middle_of(step: int) -> int:
    """Return the middle of the integers in a step."""
    if step <= 0:
        return -middle_of(-step) if step else 0
    doubling, part = divmod(step - 1, _STEPS)
    if doubling <= STEP_BITS:
        return (_STEPS + part) >> (STEP_BITS - doubling)
    width = 1 << (doubling - STEP_BITS)
    return (_STEPS + part) * width + (width - 1) // 2
