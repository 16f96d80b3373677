import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from netbench.model.fields import LoadField
from netbench.model.frame_size import FrameSize
from netbench.model.units import Load, LoadKind, line_rate_fps, parse_mebibytes, parse_seconds


@pytest.mark.parametrize(
    ("size", "fps"), [(64, 1_488_095), (500, 240_385), (1000, 122_549), (1500, 82_237), (1518, 81_274)]
)
def test_line_rate_of_a_gigabit_link(size, fps):
    assert round(line_rate_fps(1e9, size)) == fps


@pytest.mark.parametrize(
    ("text", "size", "fps"),
    [
        ("400Mbit/s", 64, 595_238.095),
        ("148809fps", 64, 148_809),
        ("1.5kfps", 1500, 1_500),
        ("50%", 64, 744_047.619),
        ("100%", 1500, 82_236.842),
        ("10 Gbit/s", 1000, 1_225_490.196),
        ("max", 64, None),
    ],
)
def test_a_load_becomes_frames_per_second(text, size, fps):
    assert Load.parse(text).fps(FrameSize.of(size), 1e9) == (fps and pytest.approx(fps, rel=1e-6))


NO_LOADS = ["400", "400Mbit", "400mbit/s", "-1Mbit/s", "0fps", "0%", "101%", "nanfps", "infbit/s", "1e3fps", "MAX"]


@pytest.mark.parametrize("text", ["", *NO_LOADS])
def test_what_is_no_load_is_refused(text):
    with pytest.raises(ValueError, match="load|share"):
        Load.parse(text)


@pytest.mark.parametrize(
    "stored", [{"load": "50% of maximum", "fps": 1234.5}, "50% of maximum (1234.5fps)"], ids=["now", "version 0.1"]
)
def test_a_calibrated_rate_is_stored_beside_its_share(stored):
    adapter = TypeAdapter(LoadField)
    load = adapter.validate_python(stored)
    assert load == Load(LoadKind.OF_MAXIMUM, 50.0, Load.of_fps(1234.5))
    assert str(load) == "50% of maximum"
    assert adapter.validate_json(adapter.dump_json(load)) == load


@given(st.floats(1e3, 1e12), st.integers(64, 1518), st.floats(0.01, 100))
def test_a_share_is_that_share_of_line_rate(link, size, share):
    fps = Load(LoadKind.SHARE, share).fps(FrameSize.of(size), link)
    assert fps == pytest.approx(link / (8 * (size + 20)) * share / 100)


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("2s", 2), ("1.5min", 90), ("20us", 2e-5), (3, 3), (0, 0)]
)
def test_times(text, seconds):
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "1", "-1s", "1 day", float("nan"), float("inf"), -1, True])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ValueError, match="time"):
        parse_seconds(text)


@given(st.integers(0, 10**6), st.sampled_from(["", " "]), st.sampled_from(["", "B", "iB"]))
def test_memory_is_in_mebibytes(amount, space, unit):
    assert parse_mebibytes(f"{amount}{space}M{unit}") == amount
    assert parse_mebibytes(f" {amount}{space}G{unit} ") == 1024 * amount


@pytest.mark.parametrize("text", ["", "256", "M", "256m", "256K", "1T", "-1M", "1.5G", "1e3M", "256Mb", "256 M B"])
def test_what_is_no_amount_of_memory_is_refused(text):
    with pytest.raises(ValueError, match="not an amount of memory; write for example 256M or 1G"):
        parse_mebibytes(text)
