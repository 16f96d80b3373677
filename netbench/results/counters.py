"""The counters in stored trials, which are most of what a trial is: left out where nobody asks for them, or added up.

Both is done in the text of the documents: to make objects of all counters takes several times as long as all else that
is read. Inside a JSON string quotes are escaped, so what is looked for here, each with quotes of its own, is never part
of one. What is not written as netbench writes it is not found, and is then read like anything else.
"""

import re
from collections.abc import Iterable, Iterator

# A list of counters ends at the first bracket, unless that is part of a name: `grew` is what stands last in it.
_LIST = r'counters":\[(?:[^]]*"grew":(?:-?\d+|null)\})?\]'
_LISTS = re.compile(f'"{_LIST}')
_GUESTS_AND_LISTS = re.compile(rf'"(?:{_LIST}|(?:name|stream)":"(?:[^"\\]|\\.)*")')
_GREW = re.compile(r'"grew":(-?\d+)')
_MOST_SUMS = 256  # in memory at a time


def without_counters(document: str) -> str:
    """A document without those of its counters that are found."""
    return _LISTS.sub('"counters":[]', document)


def added_up(documents: Iterable[tuple[str, str]]) -> Iterator[tuple[str, int]]:
    """Documents that have the same counters of the same guests as one, and how many they are.

    It is the first of them, its counters those of all added up. `documents` come with a word that tells apart what must
    not be added up.
    """
    sums: dict[tuple[str, ...], tuple[str, int, list[int]]] = {}
    for word, document in documents:
        found = _GUESTS_AND_LISTS.findall(document)
        if sum(one.startswith('"counters"') for one in found) != document.count('"counters":'):
            yield document, 1
            continue
        parts = _GREW.split("".join(found))
        alike, growths = (word, *parts[::2]), [int(one) for one in parts[1::2]]
        first, number, grown = sums.get(alike, (document, 0, [0] * len(growths)))
        sums[alike] = first, number + 1, list(map(int.__add__, grown, growths))
        if len(sums) == _MOST_SUMS:
            yield from map(_with_sums, sums.values())
            sums.clear()
    yield from map(_with_sums, sums.values())


def _with_sums(added: tuple[str, int, list[int]]) -> tuple[str, int]:
    document, number, growths = added
    left = iter(growths)
    return _LISTS.sub(lambda one: _GREW.sub(lambda _: f'"grew":{next(left)}', one[0]), document), number
