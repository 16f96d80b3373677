"""The fuzz targets, by name."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from netbench.config.shipped import PROFILES, TOPOLOGIES
from tests.fuzz import captures, documents


@dataclass(frozen=True)
class Target:
    """A check that must hold for any bytes, initial inputs, words to try, and the maximum length of inputs."""

    check: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]
    words: tuple[str, ...]
    longest: int


TARGETS = {
    "capture": Target(captures.check, captures.seeds, (), 4096),
    "topology": Target(documents.check_topology, partial(documents.seeds, TOPOLOGIES), tuple(documents.words()), 8192),
    "profile": Target(documents.check_profile, partial(documents.seeds, PROFILES), tuple(documents.words()), 4096),
}
