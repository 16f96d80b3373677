"""Data exchanged between bpf/programs/sink_headers.h and netbench: headers to compare with, flows, changed fields.

The structures match its source, field by field.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.bpf.libbpf import Loaded
from netbench.capture.changed_values import FirstChange, changed_field, changed_headers
from netbench.capture.flow_groups import flow_losses
from netbench.capture.sequences import SequenceTracker
from netbench.errors import UsageError
from netbench.model.frame_size import FrameSize
from netbench.model.frame_template import (
    MOST_CHECKSUMS,
    MOST_HEADER_BYTES,
    MOST_WORDS,
    PAYLOAD_BYTES,
    ExpectedHeaders,
    FieldPlace,
    FrameTemplate,
)
from netbench.model.packet_counts import PacketCounts
from netbench.packets.flow_values import FlowBytes, flow_bytes, frame_of_flow
from netbench.sinks.bpf_sizes import HEADER_WORDS, SizeMaps

_WORD_BYTES, _FIELD_WORDS = 8, 3
_MOST_BYTES = _WORD_BYTES * HEADER_WORDS
_MOST_PLACES, _MOST_FIELDS = 9, 192
_FLOW_WORD_BYTES, _CHECKSUM_BYTES, _TAG_BYTES = 4, 2, 4

_FIELD = np.dtype([("word", "u4"), ("is_last", "u4"), ("masks", "u8", _FIELD_WORDS)])
_MAC_BYTES, _MOST_MACS = 6, 64
_MAC = np.dtype([("words", "u8", 2), ("masks", "u8", 2)])
_HEADERS = np.dtype(
    [
        ("macs", "u8"),
        ("others", _MAC, _MOST_MACS),
        ("masks", "u8", HEADER_WORDS),
        *((name, "u4") for name in ("words", "loaded", "places")),
        ("place", "u4", _MOST_PLACES),
        *((name, "u4") for name in ("flows", "flow_words")),
        *((name, "u4", MOST_WORDS) for name in ("word_at", "word_mask")),
        ("sums", "u4"),
        *((name, "u4", MOST_CHECKSUMS) for name in ("sum_at", "sum_mask", "sum_is_udp")),
        ("fields", "u4"),
        ("field", _FIELD, _MOST_FIELDS),
    ]
)
_FLOW = np.dtype([("words", "u4", MOST_WORDS), ("sums", "u2", MOST_CHECKSUMS), ("next", "u8")])
_FIRST_CHANGE = np.dtype([("number", "u8"), ("words", "u8", _FIELD_WORDS)])
_CHANGES = np.dtype(
    [
        *((name, "u8") for name in ("frames", "reordered_in_flows", "other_headers", "other_at")),
        ("other", "u8", HEADER_WORDS),
        ("fields", "u8", _MOST_FIELDS),
        ("first", _FIRST_CHANGE, _MOST_FIELDS),
    ]
)


class FlowLayout(NamedTuple):
    """Where flows differ in a frame: the offsets of 4-byte words and of checksums, and which of these are of UDP."""

    words_at: tuple[int, ...] = ()
    sums_at: tuple[int, ...] = ()
    udp_sums: tuple[bool, ...] = ()


class HeaderMaps:
    """The maps of a program for described packets. Order of calls for each trial: begin(); end(); counts()."""

    def __init__(self, loaded: Loaded, sizes: SizeMaps) -> None:
        self._shapes = sizes.shapes
        self._headers, self._changes = loaded.map("headers"), loaded.map("changes")
        self._flows = np.frombuffer(loaded.map("flows").memory(), _FLOW)
        self._template: FrameTemplate | None = None  # whose flows the map has
        self._layout = FlowLayout()
        self._changed: NDArray[Any] | None = None
        self._frame_size: FrameSize | None = None

    def begin(self, headers: ExpectedHeaders, frame_size: FrameSize, captured_bytes: int) -> None:
        """Count from 0 the frames with these headers, sent with these sizes.

        The program reads the first `captured_bytes` of each frame, or more where headers need it. Other maps must be
        set before. UsageError if the headers exceed the limits of the program.
        """
        self._changed, self._frame_size = None, frame_size
        self._changes.put(0, bytes(self._changes.value_bytes))
        flows = self._flows[: headers.flows]
        if headers.template != self._template:
            self._template = None
            self._layout = _fill(flows, headers.template)
            self._template = headers.template
        flows["next"] = 0
        settings = header_settings(headers, self._layout, captured_bytes)
        for number, size in enumerate(frame_size.sizes):
            self._shapes["bytes"][number], self._shapes["sum"][number] = header_bytes(headers, self._layout, size)
        self._headers.put(0, settings.tobytes())

    def end(self) -> None:
        """Stop counting."""
        self._headers.put(0, bytes(self._headers.value_bytes))
        self._changed = np.frombuffer(self._changes.get(0), _CHANGES)[0]

    def counts(self, headers: ExpectedHeaders, arrived: SequenceTracker, numbers: range) -> PacketCounts:
        """Return the counts of the frames, of which these `numbers` were sent, and `arrived` ones were received."""
        changed: Any = self._changed
        assert changed is not None, "end() comes first"
        by_field = {place.name: index for index, place in enumerate(headers.compared) if changed["fields"][index]}
        fields = [
            changed_field(headers, name, int(changed["fields"][index]), self._first_change(headers, index))
            for name, index in by_field.items()
        ]
        if elsewhere := int(changed["other_headers"]):
            first = changed["other"].tobytes()
            fields.insert(0, changed_headers(headers, elsewhere, first, int(changed["other_at"])))
        losses = flow_losses(arrived, numbers, headers)
        return PacketCounts(
            flows=headers.flows,
            lossy_flows=losses.lossy_flows,
            changed_frames=int(changed["frames"]),
            changed=tuple(fields),
            reordered_in_flows=int(changed["reordered_in_flows"]),
            groups=losses.groups,
        )

    def _first_change(self, headers: ExpectedHeaders, index: int) -> FirstChange:
        """Return the first frame that differs in the field with this index; of its bytes, only this field is there."""
        assert self._changed is not None, "end() comes first"
        assert self._frame_size is not None, "begin() comes first"
        first: Any = self._changed["first"][index]
        genome, number = self._frame_size.genome, int(first["number"])
        flow = self._flows[number % headers.flows : number % headers.flows + 1]
        layout = self._layout
        words, sums = flow["words"][:, : len(layout.words_at)], flow["sums"][:, : len(layout.sums_at)]
        varying = FlowBytes(layout.words_at, words, layout.sums_at, sums, layout.udp_sums)
        expected = frame_of_flow(varying, headers.template.frames[genome[number % len(genome)]], 0)
        begin = headers.compared[index].at // _WORD_BYTES * _WORD_BYTES
        return FirstChange(number, expected, bytes(begin) + first["words"].tobytes())


def _fill(flows: NDArray[Any], template: FrameTemplate) -> FlowLayout:
    """Write the bytes that differ between flows into their map, of shape (flows,); return where they are."""
    varying = flow_bytes(template)
    flows["words"][:, : len(varying.words_at)] = varying.words
    flows["sums"][:, : len(varying.sums_at)] = varying.sums
    return FlowLayout(varying.words_at, varying.sums_at, varying.udp_sums)


def header_bytes(
    headers: ExpectedHeaders, layout: FlowLayout, frame_size: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    """Return the `bytes` and `sum` of `struct shape` for frames sent with `frame_size` bytes including the FCS.

    The shapes are (HEADER_WORDS,) and (MOST_CHECKSUMS,). UsageError if there is no template of this size.
    """
    template = headers.template
    if frame_size not in template.frames:
        raise UsageError(f"the sink bpf has no template of frames with {frame_size} bytes")
    frame = template.frames[frame_size]
    sums = np.zeros(MOST_CHECKSUMS, np.uint32)
    sums[: len(layout.sums_at)] = [0xFFFF - int.from_bytes(frame[at : at + _CHECKSUM_BYTES]) for at in layout.sums_at]
    return np.frombuffer(frame[: template.payload_at].ljust(_MOST_BYTES, b"\0"), np.uint64), sums


def header_settings(headers: ExpectedHeaders, layout: FlowLayout, captured_bytes: int) -> NDArray[Any]:
    """Return the `struct headers` of the program, of shape (); arguments and errors as in HeaderMaps.begin."""
    template = headers.template
    places = (template.payload_at, *headers.also_at)
    loaded = max(places) + PAYLOAD_BYTES
    _check(headers, places, loaded)
    # 0xFF for each byte that is compared.
    compared = np.zeros(_MOST_BYTES, np.uint8)
    compared[: template.payload_at] = 0xFF
    for start, stop in headers.ignored:
        compared[start:stop] = 0
    in_all_flows = compared.copy()
    settings: NDArray[Any] = np.zeros((), _HEADERS)
    for number, at in enumerate(layout.words_at):
        word = slice(at, at + _FLOW_WORD_BYTES)
        settings["word_at"][number], settings["word_mask"][number] = at, compared[word].view(np.uint32)[0]
        in_all_flows[word] = 0
    for number, (at, is_udp) in enumerate(zip(layout.sums_at, layout.udp_sums, strict=True)):
        checksum = slice(at, at + _CHECKSUM_BYTES)
        settings["sum_at"][number], settings["sum_mask"][number] = at, compared[checksum].view(np.uint16)[0]
        settings["sum_is_udp"][number] = is_udp
        in_all_flows[checksum] = 0
    others = [*((mac, _MAC_BYTES) for mac in headers.not_from), *((mac, 0) for mac in headers.not_to)]
    settings["macs"] = len(others)
    for number, (mac, at) in enumerate(others):
        settings["others"][number] = _mac_address(mac, at)
    settings["masks"] = in_all_flows.view(np.uint64)
    settings["words"] = -(-template.payload_at // _WORD_BYTES)
    settings["loaded"] = min(max(loaded, captured_bytes), _MOST_BYTES - _TAG_BYTES)
    settings["places"] = len(places)
    settings["place"][: len(places)] = places
    settings["flows"] = headers.flows
    settings["flow_words"], settings["sums"] = len(layout.words_at), len(layout.sums_at)
    settings["fields"] = len(headers.compared)
    following = (*(place.name for place in headers.compared[1:]), None)
    for number, (place, name) in enumerate(zip(headers.compared, following, strict=True)):
        settings["field"][number] = place.at // _WORD_BYTES, place.name != name, _masks(place, compared)
    return settings


def _check(headers: ExpectedHeaders, places: tuple[int, ...], loaded: int) -> None:
    if loaded > _MOST_BYTES - _TAG_BYTES or headers.template.payload_at > MOST_HEADER_BYTES:
        raise UsageError(
            f"the headers of a frame take {loaded} bytes, where the sink bpf compares at most "
            f"{_MOST_BYTES - _TAG_BYTES}; describe fewer headers, or use `sink: tcpdump`"
        )
    if len(places) > _MOST_PLACES:
        raise UsageError(
            f"pktgen's header may begin at {len(places)} bytes of a frame, where the sink bpf looks at most at "
            f"{_MOST_PLACES}; expect fewer kinds of headers"
        )
    if (macs := len(headers.not_from) + len(headers.not_to)) > _MOST_MACS:
        raise UsageError(
            f"other streams have {macs} MAC addresses, of which the sink bpf recognises at most {_MOST_MACS}; measure "
            "fewer streams at once, or use `sink: tcpdump`"
        )
    if len(headers.compared) > _MOST_FIELDS:
        raise UsageError(
            f"a frame has {len(headers.compared)} header fields, where the sink bpf compares at most {_MOST_FIELDS}; "
            "describe fewer headers, or use `sink: tcpdump`"
        )


def _mac_address(mac: str, at: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the words and masks of a `struct mac_address` for an address at this byte of a frame."""
    address = bytes.fromhex(mac.replace(":", ""))
    ends = at, 2 * _WORD_BYTES - at - len(address)
    words, masks = (
        np.frombuffer(bytes(ends[0]) + part + bytes(ends[1]), np.uint64) for part in (address, b"\xff" * len(address))
    )
    return words, masks


def _masks(place: FieldPlace, compared: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the masks of a field in `struct field`, uint64 of shape (_FIELD_WORDS,), as bytes lie in a frame."""
    within = place.at % _WORD_BYTES
    bits = np.zeros(_FIELD_WORDS * _WORD_BYTES, np.uint8)
    bits[within : within + place.size] = np.frombuffer(place.mask.to_bytes(place.size), np.uint8)
    bits[within : within + place.size] &= compared[place.at : place.at + place.size]
    masks: NDArray[np.uint64] = bits.view(np.uint64)
    return masks
