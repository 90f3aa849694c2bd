import pytest
from hypothesis import given, strategies as st

from windfall.errors import BadInput
from windfall.model import units

SIZES = {
    "2GB": 2 * 10**9,
    "2GiB": 2 << 30,
    "2G": 2 << 30,
    "0.1GB": 10**8,
    "512 mb": 512 * 10**6,
    "7B": 7,
    "0": 0,
    "1.5k": 1536,
}
DURATIONS = {
    "30min": 1_800_000,
    "1h30m": 5_400_000,
    "1h 30m": 5_400_000,
    "90s": 90_000,
    "250ms": 250,
    "2d": 172_800_000,
    "0.5s": 500,
    "0": 0,
    "1 hour 5 seconds": 3_605_000,
}


@pytest.mark.parametrize(("text", "size"), SIZES.items())
def test_sizes_parse_to_bytes(text, size):
    assert units.parse_size(text) == size


@pytest.mark.parametrize(("text", "ms"), DURATIONS.items())
def test_durations_parse_to_milliseconds(text, ms):
    assert units.parse_duration(text) == ms


@pytest.mark.parametrize(
    "text", ["", " ", "2", 2, "GB", "2XB", "-1GB", "1e9GB", None, "2GB3", True, "9" * 30 + "GB", "900000PB"]
)
def test_invalid_size_is_refused(text):
    with pytest.raises(BadInput, match="memory"):
        units.parse_size(text, "memory")


@pytest.mark.parametrize("text", ["", "30", 30, "min", "5 parsecs", "-3s", "1h30", [], "999999999d"])
def test_invalid_duration_is_refused(text):
    with pytest.raises(BadInput, match="time"):
        units.parse_duration(text, "time")


@given(st.integers(0, units.MAX_DURATION))
def test_exact_durations_parse_back(ms):
    assert units.parse_duration(units.exact_duration(ms)) == ms


@given(st.integers(0, units.MAX_SIZE))
def test_exact_sizes_parse_back(size):
    assert units.parse_size(units.exact_size(size)) == size


def test_shown_to_people():
    assert [units.format_duration(ms) for ms in (0, 999, 4200, 725_000, 11_220_000, 187_200_000)] == [
        "0ms",
        "999ms",
        "4.2s",
        "12m05s",
        "3h07m",
        "2d04h",
    ]
    assert [units.format_size(n) for n in (0, 999, 2_050_000_000, 999_900)] == ["0 B", "999 B", "2.05 GB", "1 MB"]
