"""Steps of a logarithmic scale, by which very many integers are counted. It needs the standard library alone."""

from array import array
from collections import Counter
from collections.abc import Iterable

# Each doubling is divided into 2^STEP_BITS steps of equal width. The middle of a step differs from any number in it by
# at most 2^-(STEP_BITS + 1), 0.05 %, of that number; below 2^(STEP_BITS + 1), steps are single integers.
STEP_BITS = 10
STEPS = 1 << STEP_BITS
# IEEE 754 binary64: the bits of a positive number, read as an integer, rise linearly within each doubling. The leading
# bits, minus those of 1.0, are therefore the number of the step.
MANTISSA_BITS = 52
BITS_OF_ONE = 1023 << STEP_BITS


def middle_of(step: int) -> int:
    """Return the middle of the integers in a step. The step of 1 is 1, that of 0 is 0, and -x has minus that of x."""
    if step <= 0:
        return -middle_of(-step) if step else 0
    doubling, part = divmod(step - 1, STEPS)
    if doubling <= STEP_BITS:
        return (STEPS + part) >> (STEP_BITS - doubling)
    width = 1 << (doubling - STEP_BITS)
    return (STEPS + part) * width + (width - 1) // 2


def counts_by_step(values: Iterable[int]) -> list[tuple[int, int]]:
    """Return the middle of each step that has values, and their number, in ascending order; values are below 2^63.

    `Distribution.steps` returns the same, by numpy.
    """
    sizes = memoryview(array("d", values)).cast("B").cast("q")
    # The sign is the highest bit: as an integer, a negative number is its size minus 2^63.
    counts = Counter(bits >> (MANTISSA_BITS - STEP_BITS) for bits in sizes)
    by_step: Counter[int] = Counter()
    for bits, number in counts.items():
        size = bits if bits >= 0 else bits + (1 << (63 - MANTISSA_BITS + STEP_BITS))
        step = max(0, size - BITS_OF_ONE + 1)
        by_step[step if bits >= 0 else -step] += number
    return [(middle_of(step), by_step[step]) for step in sorted(by_step)]
