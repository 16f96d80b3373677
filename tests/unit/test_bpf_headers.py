"""The settings by which the sink bpf's program compares headers: which bits of a frame they cover, and their limits."""

from dataclasses import replace

import numpy as np
import pytest

from netbench.errors import UsageError
from netbench.model.frame_size import FrameSize
from netbench.model.frame_template import FieldPlace
from netbench.packets.flow_values import flow_bytes
from netbench.sinks.bpf_counter import Capacity
from netbench.sinks.bpf_headers import FlowLayout, header_bytes, header_settings
from tests.unit.described_packets import PACKETS, Described

SIZE = 128
NAMES = ["plain", "vlans", "qinq", "vxlan", "tcp", "macs", "pop"]
# Bytes that are not compared, as in a packet with any value there.
IGNORED = {"vlans": ((14, 16), (28, 30)), "tcp": ((24, 26), (34, 35)), "macs": ((6, 12),)}


def settings_of(name, captured_bytes=0, **more):
    headers = replace(Described.of(PACKETS[name], FrameSize.of(SIZE)).headers, **more)
    varying = flow_bytes(headers.template)
    layout = FlowLayout(varying.words_at, varying.sums_at, varying.udp_sums)
    return headers, layout, header_settings(headers, layout, captured_bytes)


def covered(settings) -> np.ndarray:
    """The bits of a frame that the program compares, as it does: of all flows, words of flows, checksums of flows."""
    found = np.array(settings["masks"]).view(np.uint8).copy()
    for number in range(int(settings["flow_words"])):
        at = int(settings["word_at"][number])
        assert not found[at : at + 4].any()
        found[at : at + 4] = settings["word_mask"][number : number + 1].view(np.uint8)
    for number in range(int(settings["sums"])):
        at = int(settings["sum_at"][number])
        assert not found[at : at + 2].any()
        found[at : at + 2] = settings["sum_mask"][number : number + 1].astype(np.uint16).view(np.uint8)
    return found[: 8 * int(settings["words"])]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("with_free_bytes", [False, True])
def test_each_header_bit_is_compared_once_unless_it_is_free(name, with_free_bytes):
    ignored = IGNORED.get(name, ()) if with_free_bytes else ()
    headers, layout, settings = settings_of(name, ignored=ignored)
    payload_at = headers.template.payload_at
    expected = np.array([0xFF] * payload_at + [0] * (-payload_at % 8), np.uint8)
    for start, stop in ignored:
        expected[start:stop] = 0
    assert covered(settings).tolist() == expected.tolist()
    assert int(settings["flow_words"]) == len(layout.words_at)
    by_name: dict[str, int] = {}
    for place, field in zip(headers.compared, settings["field"], strict=False):
        mask = int.from_bytes(field["masks"].tobytes()) << 8 * (256 - 8 * int(field["word"]) - 24)
        wanted = place.mask << 8 * (256 - place.at - place.size)
        free = sum(0xFF << 8 * (255 - byte) for start, stop in ignored for byte in range(start, stop))
        assert mask == wanted & ~free, place
        by_name[place.name] = by_name.get(place.name, 0) | mask
    all_fields = sum(by_name.values())
    assert all_fields == int.from_bytes(expected.tobytes()) << 8 * (256 - len(expected))


def test_parts_of_a_long_field_are_counted_together():
    places = (
        FieldPlace("A.a", 0, 6, 2**48 - 1),
        FieldPlace("A.long", 6, 16, 2**128 - 1),
        FieldPlace("A.long", 22, 3, 2**24 - 1),
        FieldPlace("A.b", 25, 1, 0xFF),
    )
    _, _, settings = settings_of("plain", compared=places)
    assert settings["field"]["is_last"][:5].tolist() == [1, 0, 1, 1, 0]


@pytest.mark.parametrize(
    ("also_at", "captured_bytes", "loaded"),
    [((), 0, 58), ((46, 38), 0, 62), ((100,), 64, 116), ((46,), 128, 128), ((46,), 1 << 16, 252)],
)
def test_the_program_reads_as_much_as_headers_and_sample_need(also_at, captured_bytes, loaded):
    _, _, settings = settings_of("plain", captured_bytes, also_at=also_at)
    assert settings["loaded"] == loaded
    assert settings["place"][: int(settings["places"])].tolist() == [42, *also_at]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"also_at": (240,)}, "headers of a frame take 256 bytes, where the sink bpf compares at most 252"),
        ({"also_at": tuple(range(20, 29))}, "may begin at 10 bytes of a frame, where the sink bpf looks at most at 9"),
        ({"compared": (FieldPlace("IP.ttl", 22, 1, 0xFF),) * 193}, "193 header fields, where the sink bpf compares at"),
    ],
)
def test_headers_beyond_the_limits_are_refused(more, why):
    with pytest.raises(UsageError, match=why):
        settings_of("plain", **more)


def test_a_size_without_a_template_is_refused():
    headers = Described.of(PACKETS["plain"], FrameSize.of(SIZE)).headers
    with pytest.raises(UsageError, match="no template of frames with 64 bytes"):
        header_bytes(headers, FlowLayout(), 64)


@pytest.mark.parametrize("name", NAMES)
def test_each_size_has_its_own_lengths_and_checksums(name):
    mix = FrameSize("mix", (1518, 128, 594, 128))
    headers = Described.of(PACKETS[name], mix).headers
    varying = flow_bytes(headers.template)
    layout = FlowLayout(varying.words_at, varying.sums_at, varying.udp_sums)
    for size in mix.sizes:
        found, sums = header_bytes(headers, layout, size)
        of_one = Described.of(PACKETS[name], FrameSize.of(size)).headers.template.frames[size]
        payload_at = headers.template.payload_at
        assert found.tobytes() == of_one[:payload_at].ljust(256, b"\0")
        for at, complement in zip(layout.sums_at, sums.tolist(), strict=False):
            assert complement ^ 0xFFFF == int.from_bytes(of_one[at : at + 2])


@pytest.mark.parametrize(
    ("existing", "needed", "fits"),
    [
        (Capacity(1 << 16, 1), Capacity(1 << 16, 1), True),
        (Capacity(1 << 16, 1), Capacity(1 << 17, 1), False),
        (Capacity(1 << 16, 1), Capacity(1 << 16, 2), False),
        (Capacity(1 << 16, 1, 5), Capacity(1 << 16, 1, 5), True),
        (Capacity(1 << 16, 1, 5), Capacity(1 << 16, 1, 6), False),
        (Capacity(1 << 16, 1, 5), Capacity(1 << 16, 1), False),  # plain frames need the other program
        (Capacity(1 << 16, 1), Capacity(1 << 16, 1, 5), False),
        (Capacity(1 << 16, 1, 0, 3), Capacity(1 << 16, 1), True),
        (Capacity(1 << 16, 1, 0, 3), Capacity(1 << 16, 1, 0, 4), False),
    ],
)
def test_a_program_is_replaced_where_another_trial_needs_more_or_the_other_one(existing, needed, fits):
    assert existing.fits(needed) == fits
