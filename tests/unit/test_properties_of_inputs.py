"""Properties of all user input: it reads back unchanged, and a mistake is reported with its position."""

import math
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netbench.config.document import parse_document, value_at, yaml_text
from netbench.config.loading import load_profile, load_topology
from netbench.config.plugins import UUTS, option_models, profile_kinds
from netbench.config.shipped import PROFILES, TOPOLOGIES, shipped
from netbench.errors import UsageError
from netbench.model.fields import parse_percent, percent_text
from netbench.model.units import Load, format_bit_rate, parse_bit_rate, parse_mebibytes, parse_seconds
from tests.fuzz.memory import file_of

NUMBERS = st.decimals(0, 10**12, allow_nan=False, allow_infinity=False, places=9).map(lambda value: f"{value:f}")
BIT_RATES = st.builds("{}{}bit/s".format, NUMBERS, st.sampled_from(["", "k", "M", "G", "T"]))
LOADS = st.one_of(
    BIT_RATES,
    st.builds("{}{}fps".format, NUMBERS, st.sampled_from(["", "k", "M"])),
    st.builds("{}%".format, st.decimals(0, 100, places=6).map(lambda value: f"{value:f}")),
    st.just("max"),
).filter(lambda text: text == "max" or Decimal(text.rstrip("%kMGTbitfps/")) > 0)
TIMES = st.builds(
    "{}{}".format, st.decimals(1, 3600, places=3).map(lambda value: f"{value:f}"), st.sampled_from(["us", "ms", "s"])
)


@given(LOADS)
def test_a_load_reads_back_as_the_very_same(text):
    """It is equal to the last bit: a resumed campaign must intend the same load as before."""
    load = Load.parse(text)
    assert Load.parse(str(load)) == load
    assert str(Load.parse(str(load))) == str(load)


@given(BIT_RATES)
def test_a_bit_rate_reads_back_as_the_very_same(text):
    rate = parse_bit_rate(text)
    assert parse_bit_rate(format_bit_rate(rate)) == rate
    number, prefix = text.removesuffix("bit/s").rstrip("kMGT"), text.removesuffix("bit/s")[-1]
    factor = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}.get(prefix, 1)
    assert rate == float(Decimal(number) * factor), "the float nearest to what is written"


@given(st.decimals(0, 100, places=8))
def test_a_percentage_reads_back_as_the_very_same(value):
    ratio = parse_percent(f"{value:f}%")
    assert ratio == float(value / 100)
    assert parse_percent(percent_text(ratio)) == ratio


@pytest.mark.parametrize(
    "parse",
    [Load.parse, parse_bit_rate, parse_seconds, parse_mebibytes, parse_percent],
    ids=lambda function: function.__qualname__,
)
@given(text=st.one_of(st.text(), st.from_regex(r"\A[0-9.]{1,400}\s?(bit/s|fps|%|s|h|M|G)\Z")))
def test_any_text_is_a_finite_value_or_a_value_error(parse, text):
    try:
        found = parse(text)
    except ValueError:
        return
    number = found.value if isinstance(found, Load) else found
    assert math.isfinite(number)
    assert number >= 0


def some(values):
    """Lists of a few different values."""
    return st.lists(values, min_size=1, max_size=4, unique=True)


@st.composite
def profiles(draw):
    """Profiles as a user could write them."""
    return {
        "name": draw(st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,39}\Z")),
        "description": draw(st.text(st.characters(exclude_categories=["Cs", "Cc"]))),
        "frame_sizes": draw(some(st.integers(64, 1518))),
        "loads": draw(some(LOADS).filter(lambda texts: len(set(map(Load.parse, texts))) == len(texts))),
        "streams": draw(st.one_of(st.just("each"), some(st.integers(1, 1000)))),
        "repetitions": draw(st.integers(1, 1000)),
        "duration": draw(TIMES),
        "settle": {"before": draw(TIMES), "after": draw(TIMES)},
        "order": draw(st.sampled_from(["interleaved", "sequential", "random"])),
        "seed": draw(st.integers(0, 2**32 - 1)),
        "tolerance": draw(st.decimals(0, 100, places=4).map(lambda value: f"{value:f}%")),
        "retries": draw(st.integers(0, 10)),
        "generator": {"kind": "afpacket", "threads": draw(st.integers(1, 4))},
    }


@settings(max_examples=30)
@given(profiles())
def test_a_profile_that_results_keep_reads_back_the_same(written):
    models = profile_kinds()
    with file_of(yaml_text(written).encode()) as path:
        profile = load_profile(path, models)
    with file_of(yaml_text(profile.model_dump(mode="json", exclude_none=True)).encode()) as path:
        assert load_profile(path, models) == profile


def leaves(data, path=()):
    """The paths of the scalars in plain data."""
    if isinstance(data, dict | list):
        items = data.items() if isinstance(data, dict) else enumerate(data)
        return [leaf for key, value in items for leaf in leaves(value, (*path, key))]
    return [path]


def changed(data, path, value):
    """The same data with another value at a place."""
    if not path:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[path[0]] = changed(copy[path[0]], path[1:], value)
    return copy


@settings(max_examples=30)
@given(st.sampled_from([*shipped(TOPOLOGIES).values(), *shipped(PROFILES).values()]), st.data())
def test_whatever_is_wrong_is_named_with_its_line_and_key(file, data):
    """No field of a shipped file may be a mapping of this sort."""
    good = parse_document(file.read_text(), "").data  # `on` is a word to netbench, and true to YAML 1.1
    wrong = data.draw(st.sampled_from(leaves(good)))
    text = yaml_text(changed(good, wrong, {"no-such-key": 1}))
    is_topology = file.parent.name == TOPOLOGIES
    with file_of(text.encode()) as path, pytest.raises(UsageError) as caught:
        load_topology(path, option_models(UUTS)) if is_topology else load_profile(path, profile_kinds())
    document = parse_document(text, str(path))
    around = {document.where(wrong[:length], key=key) for length in range(1, len(wrong) + 1) for key in (False, True)}
    around.add(document.where((*wrong, "no-such-key"), key=True))
    if wrong[-1] == "name":  # references to that name are wrong, too
        around |= {document.where(path) for path in leaves(good) if value_at(good, path) == value_at(good, wrong)}
    assert any(f"{place}: " in str(caught.value) for place in around), str(caught.value)
    assert any(str(key) in str(caught.value) for key in wrong if isinstance(key, str))
