"""Invariants of the readers of topologies and profiles, for any text.

The text is rejected with a message about the file, or it is a model. A model is equal after writing and reading it, and
a campaign either plans or rejects it.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from netbench.campaign.request import make_request
from netbench.config.document import yaml_text
from netbench.config.loading import load_profile, load_topology
from netbench.config.plugins import UUTS, option_models, profile_kinds
from netbench.config.shipped import PROFILES, TOPOLOGIES, find, shipped
from netbench.errors import MissingError, UsageError
from netbench.model.profile import Profile
from netbench.model.topology import Topology
from tests.fuzz.memory import file_of

M = TypeVar("M", Topology, Profile)

_UUTS, _KINDS = option_models(UUTS), profile_kinds()
_OPTIONS = {name: model for kinds in _KINDS.values() for name, model in kinds.items()}
_TOPOLOGY = load_topology(find(TOPOLOGIES, "netns"), _UUTS)
_PROFILE = load_profile(find(PROFILES, "quick"), _KINDS)


def check_topology(data: bytes) -> Topology | None:
    """Return `data` as a topology; None if it is rejected, AssertionError if that violates an invariant."""
    topology = _read(data, lambda path: load_topology(path, _UUTS))
    if topology is not None:
        _plan(topology, _PROFILE)
    return topology


def check_profile(data: bytes) -> Profile | None:
    """Return `data` as a profile; None if it is rejected, AssertionError if that violates an invariant."""
    profile = _read(data, lambda path: load_profile(path, _KINDS))
    if profile is not None:
        _plan(_TOPOLOGY, profile)
    return profile


def seeds(folder: str) -> Iterator[bytes]:
    """The shipped files of `topologies` or `pktgen-profiles`, and documents that are hard to read."""
    for path in shipped(folder).values():
        yield path.read_bytes()
    yield b"a: &x [*x, *x]\n<<: *x\n"
    yield b"repetitions: 0x" + b"f" * 64
    yield b"seed: 1e999\nduration: .nan\nloads: [0b1, 0o7, 1:30, 2001-01-01, ~, !!binary eA==]"


def words() -> Iterator[str]:
    """Words for a fuzzer to try: keys of the files, and tokens with a meaning in YAML."""
    yield from (
        ": ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        "&a",
        "*a",
        "<<: ",
        "!!",
        "? ",
        "| ",
        "> ",
        "# ",
        "---",
        "...",
        ".inf",
        "~",
    )
    for model in (Topology, Profile, *_UUTS.values(), *_OPTIONS.values()):
        yield from model.model_fields
    yield from (
        *_UUTS,
        *_OPTIONS,
        "ends",
        "ingress",
        "egress",
        "sink",
        "rate",
        "neighbours",
        "placement",
        "same-cpu",
    )


def _read(data: bytes, read: Callable[[Path], M]) -> M | None:
    with file_of(data) as path:
        try:
            model = read(path)
        except UsageError as refused:
            _check_refusal(refused, path)
            return None
    written = yaml_text(model.model_dump(mode="json", exclude_none=True))
    with file_of(written.encode()) as path:
        assert read(path) == model, "what results keep reads back the same"
    return model


def _check_refusal(error: UsageError, path: Path) -> None:
    assert all(line.startswith(str(path)) for line in str(error).split("\n")), "each line names the file"


def _plan(topology: Topology, profile: Profile) -> None:
    with suppress(UsageError, MissingError):  # a rejection is correct; any other error is a bug
        trials = make_request(topology, profile).schedule.trials or ()
        assert len({trial.key for trial in trials}) == len(trials)
