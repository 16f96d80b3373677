"""The output of `netbench analyze`: the counts of a capture as text or JSON."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netbench.cli.analyze_doubts import Doubts, duration, stream_name
from netbench.cli.output import width_of, wrapped

if TYPE_CHECKING:
    from netbench.capture.capture_counts import CaptureCounts, Rate, Span
    from netbench.model.distributions import Spread

Document = dict[str, Any]

_WIDEST_NOTES = 103
_NOTES = """\
Missing and loss runs lie between the lowest and the highest sequence number seen: what was lost before
the first or after the last frame of a stream is not in them. Numbers have 32 bits: one that is nearer
beyond 2^32, where they begin at 0 again, is counted on from there (RFC 1982). Rates are of distinct
frames, (n - 1) / (last - first). Extent is by how many frames a reordered one came after the first with a
higher number (RFC 4737). Delay is capture time - time stamp in the frame: it means something only on
one clock. PDV is delay - least delay; IPDV is how much the delays of frames with consecutive numbers
differ (RFC 5481). Of fewer than 10, 100 or 1,000 frames, the 90 %, 99 % or 99.9 % percentile is not given."""

# Columns of the tables: heading, key of the document, format of its value. The first column names the row.
_RATES = (
    ("Frames/s", "rate_fps", ",.1f"),
    ("Mbit/s L1", "rate_l1_mbps", ",.3f"),
    ("Mbit/s L2", "rate_l2_mbps", ",.3f"),
)
_INTERFACES = (("Frames", "frames", ","), ("Link type", "link_type", ""), *_RATES)
_ACROSS = (
    ("Interfaces", "interfaces", ","),
    ("On any of them", "received_frames", ","),
    ("On none of them", "missing_frames", ","),
)
_COUNTS = (
    ("Received", "received_frames", ","),
    ("Missing", "missing_frames", ","),
    ("Duplicates", "duplicate_frames", ","),
    ("Reordered", "reordered_frames", ","),
    ("Loss runs", "loss_runs", ","),
    ("Longest", "longest_loss_run_frames", ","),
)
_EXTENTS = (
    ("Extent: median", "reordering_extent_median_frames", ","),
    ("mean", "reordering_extent_mean_frames", ",.1f"),
    ("max", "reordering_extent_max_frames", ","),
)
_DELAYS = {"delay": "delay", "pdv": "PDV", "ipdv": "IPDV"}
_DELAY_HEADINGS = ("Min", "Mean", "Median", "90 %", "99 %", "99.9 %", "Max")


def analyze_command(path: Path, as_json: bool) -> str:
    """Return the analysis of the capture at `path` as printable text; UsageError when it cannot be read."""
    from netbench.capture.counting import analyze_capture  # noqa: PLC0415 - --help needs none

    counts = analyze_capture(path)
    document = _document(path, counts, Doubts(counts))
    if as_json:
        import json  # noqa: PLC0415 - likewise

        return json.dumps(document, indent=2)
    return _text(counts, document, width_of(sys.stdout))


def _document(path: Path, counts: "CaptureCounts", doubts: Doubts) -> Document:
    """Return the analysis for JSON: integers for frames, bytes and nanoseconds; None for unknown values."""
    oddities, clock = counts.oddities, counts.clock_offset
    # Several interfaces may have captured the same frame: the sum of their rates means nothing.
    rate = counts.span.rate(counts.frames) if len(counts.interfaces) <= 1 else None
    return {
        "file": str(path),
        "format": counts.flavour,
        "link_types": list(dict.fromkeys(interface.link_type for interface in counts.interfaces)) or [counts.link_type],
        "snap_length_bytes": counts.snap_length,
        "frames": counts.frames,
        "pktgen_frames": counts.pktgen_frames,
        "foreign_frames": counts.foreign_frames,
        "control_frames": counts.control_frames,
        "flush_frames": counts.flush_frames,
        "clock_offset_min_ns": clock.least_ns if clock else None,
        "clock_offset_max_ns": clock.most_ns if clock else None,
        "too_short_frames": counts.too_short_frames,
        "odd_length_frames": counts.odd_length_frames,
        "other_protocols": dict(counts.other_protocols),
        "undecoded_frames": sum(counts.undecoded.values()),
        "undecoded": dict(counts.undecoded),
        "encapsulated": {" > ".join(headers): frames for headers, frames in counts.encapsulated.items()},
        "wrong_length_frames": oddities.wrong_lengths,
        "invalid_fraction_frames": oddities.invalid_fractions,
        "small_fraction_frames": oddities.small_fractions,
        "unknown_interface_frames": oddities.unknown_interface,
        "capture_dropped_frames": oddities.dropped,
        **_span(counts.span, rate, trusts_time=doubts.trusts_time()),
        "truncated": counts.truncated,
        "leftover_bytes": counts.leftover_bytes,
        "damaged_at": counts.damaged_at,
        "damage": counts.damage or None,
        "interfaces": [
            {
                "name": interface.name,
                "link_type": interface.link_type,
                "snap_length_bytes": interface.snap_length,
                "frames": interface.span.frames,
                **_span(
                    interface.span,
                    interface.span.rate(interface.span.frames),
                    trusts_time=doubts.trusts_interface_time(number),
                ),
            }
            for number, interface in enumerate(counts.interfaces)
        ],
        "across_interfaces": [
            {
                "src_ip": stream.src_ip,
                "dst_ip": stream.dst_ip,
                "interfaces": stream.interfaces,
                "received_frames": stream.received,
                "missing_frames": stream.missing if doubts.trusts_loss_across(stream.src_ip, stream.dst_ip) else None,
            }
            for stream in counts.across_interfaces
        ],
        "streams": [_stream(counts, number, doubts) for number in range(len(counts.streams))],
        "warnings": [*_warnings(counts), *doubts.warnings()],
    }


def _stream(counts: "CaptureCounts", number: int, doubts: Doubts) -> Document:
    stream = counts.streams[number]
    trusts = doubts.trusted(number)
    trusts_loss, trusts_order, trusts_variation = "loss" in trusts, "order" in trusts, "variation" in trusts
    extent = stream.reordering_extent if trusts_order else None
    return {
        "src_ip": stream.src_ip,
        "dst_ip": stream.dst_ip,
        "received_frames": stream.received,
        "missing_frames": stream.missing if trusts_loss else None,
        "duplicate_frames": stream.duplicates,
        "reordered_frames": stream.reordered if trusts_order else None,
        "loss_runs": stream.loss_runs if trusts_loss else None,
        "longest_loss_run_frames": stream.longest_loss_run if trusts_loss else None,
        "min_seq": stream.min_seq,
        "max_seq": stream.max_seq,
        **_span(stream.span, stream.rate, trusts_time="time" in trusts),
        **_spread("delay", stream.delay if "delay" in trusts else None),
        **_spread("pdv", stream.delay.above_smallest if stream.delay and trusts_variation else None),
        **_spread("ipdv", stream.ipdv if trusts_variation else None),
        "loss_run_lengths": [{"from_frames": run.from_frames, "runs": run.runs} for run in stream.loss_run_lengths]
        if trusts_loss
        else None,
        "reordering_extent_median_frames": extent.median if extent else None,
        "reordering_extent_mean_frames": extent.mean if extent else None,
        "reordering_extent_max_frames": extent.largest if extent else None,
        "interface": counts.interfaces[stream.interface].name,
        "untimed_frames": stream.span.untimed_frames,
        "unstamped_frames": stream.clocks.unstamped,
    }


def _spread(name: str, spread: "Spread | None") -> Document:
    return {
        f"{name}_min_ns": spread.smallest_ns if spread else None,
        f"{name}_mean_ns": spread.mean_ns if spread else None,
        f"{name}_median_ns": spread.median_ns if spread else None,
        f"{name}_p90_ns": spread.p90_ns if spread else None,
        f"{name}_p99_ns": spread.p99_ns if spread else None,
        f"{name}_p999_ns": spread.p999_ns if spread else None,
        f"{name}_max_ns": spread.largest_ns if spread else None,
    }


def _span(span: "Span", rate: "Rate | None", *, trusts_time: bool) -> Document:
    rate = rate if trusts_time else None
    return {
        "bytes": span.total_bytes,
        "frame_size_min": span.smallest,
        "frame_size_max": span.largest,
        "first_ns": span.first_ns if trusts_time else None,
        "last_ns": span.last_ns if trusts_time else None,
        "rate_fps": rate.fps if rate else None,
        "rate_l1_mbps": rate.l1_mbps if rate else None,
        "rate_l2_mbps": rate.l2_mbps if rate else None,
    }


def _text(counts: "CaptureCounts", document: Document, width: int) -> str:
    """Return the document in lines of at most this width, if words and numbers allow it."""
    facts = "\n".join(wrapped(f"  {name:<9} ", value, width) for name, value in _facts(counts, document))
    parts = [f"{document['file']}\n{facts}"]
    if len(counts.interfaces) > 1:
        named = [(interface["name"] or "unnamed", interface) for interface in document["interfaces"]]
        parts.append(_table("Interface", _INTERFACES, named, width))
    if counts.streams:
        parts += _stream_tables(counts, document, width)
        parts.append(wrapped("", _NOTES, min(width, _WIDEST_NOTES)))
    elif counts.frames:
        decoded = " that could be decoded" if counts.undecoded or counts.too_short_frames else ""
        parts.append(f"No stream found: no frame{decoded} carries pktgen's header (magic 0xbe9be955 after UDP).")
    if document["warnings"]:
        parts.append("\n".join(wrapped("WARNING: ", warning, width) for warning in document["warnings"]))
    return "\n\n".join(parts)


def _stream_tables(counts: "CaptureCounts", document: Document, width: int) -> Iterator[str]:
    names = [stream_name(counts, stream) for stream in counts.streams]
    rows = list(zip(names, document["streams"], strict=True))
    for _, stream in rows:
        stream["sequence"] = f"{stream['min_seq']:,}-{stream['max_seq']:,}"
        stream["size"] = _range(stream["frame_size_min"], stream["frame_size_max"])
        stream["runs"] = _loss_runs(stream["loss_run_lengths"] or ())
    yield _table("Stream", (*_COUNTS, ("Sequence", "sequence", "")), rows, width)
    yield _table("Stream", (("Size", "size", ""), *_RATES), rows, width)
    if counts.across_interfaces:
        across = [(f"{stream['src_ip']} > {stream['dst_ip']}", stream) for stream in document["across_interfaces"]]
        yield _table("On several interfaces", _ACROSS, across, width)
    timed = [row for name, stream in rows for row in _delay_rows(name, stream)]
    if timed:
        columns = [("", "kind", ""), *((heading, heading, "") for heading in _DELAY_HEADINGS)]
        yield _table("Stream", columns, timed, width)
    disturbed = [row for row, stream in zip(rows, counts.streams, strict=True) if stream.missing or stream.reordered]
    if disturbed:
        yield _table("Stream", (*_EXTENTS, ("Loss runs by length", "runs", "")), disturbed, width)


def _delay_rows(name: str, stream: Document) -> Iterator[tuple[str, Document]]:
    """Yield a row for each kind of delay; none if all are unknown."""
    times = {kind: [stream[key] for key in _spread(kind, None)] for kind in _DELAYS}
    if any(value is not None for values in times.values() for value in values):
        for kind, values in times.items():
            cells = [None if ns is None else duration(ns) for ns in values]
            yield name, {"kind": _DELAYS[kind], **dict(zip(_DELAY_HEADINGS, cells, strict=True))}


def _loss_runs(lengths: Sequence[Document]) -> str | None:
    runs = []
    for run in lengths:
        first = run["from_frames"]
        runs.append(f"{run['runs']:,} of {first:,}" + (f"-{2 * first - 1:,}" if first > 1 else ""))
    return ", ".join(runs) or None


def _facts(counts: "CaptureCounts", document: Document) -> Iterator[tuple[str, str]]:
    snap = "frames not cut" if counts.snap_length is None else f"snap length {counts.snap_length:,} bytes"
    yield "format", "; ".join((counts.flavour, counts.link_type, snap))
    sizes = _range(document["frame_size_min"], document["frame_size_max"])
    of_sizes = f" of {sizes} bytes with FCS, {document['bytes']:,} bytes in all" if counts.frames else ""
    yield "frames", f"{counts.frames:,}{of_sizes}"
    first_ns, last_ns = document["first_ns"], document["last_ns"]
    if first_ns is not None and last_ns is not None:
        yield "time", f"{_moment(first_ns)}, for {(last_ns - first_ns) / 1e9:.6f} s"
    if document["rate_fps"] is not None:
        l1, l2 = document["rate_l1_mbps"], document["rate_l2_mbps"]
        yield "rate", f"{document['rate_fps']:,.1f} frames/s, {l1:,.3f} Mbit/s L1, {l2:,.3f} Mbit/s L2"
    yield "pktgen", f"{counts.pktgen_frames:,} frames; streams: {len(counts.streams):,}"
    if counts.encapsulated:
        yield "headers", _kinds({" > ".join((*path, "IP")): frames for path, frames in counts.encapsulated.items()})
    foreign = f"{counts.foreign_frames:,} frames without pktgen's header"
    if counts.too_short_frames:
        foreign += f", of which {counts.too_short_frames:,} were captured too short to have it"
    yield "foreign", foreign + (f": {_kinds(counts.other_protocols)}" if counts.other_protocols else "")
    if counts.undecoded:
        yield "undecoded", f"{document['undecoded_frames']:,} of the foreign frames: {_kinds(counts.undecoded)}"
    if counts.control_frames:
        yield "control", f"{counts.control_frames:,} frames of link protocols, such as spanning tree"
    if counts.flush_frames:
        yield "flush", f"{counts.flush_frames:,} frames that netbench's sink sent itself to end a capture"
    if counts.clock_offset:
        least, most = duration(counts.clock_offset.least_ns), duration(counts.clock_offset.most_ns)
        yield "clock", f"that of the capture is ahead of that of the sink's machine by {least} to {most}"


def _kinds(frames: Mapping[str, int]) -> str:
    """Return the number of frames of each kind, the most frequent first."""
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(frames.items(), key=lambda item: -item[1]))


def _range(least: int | None, most: int | None) -> str:
    return f"{least}" if least == most else f"{least}-{most}"


def _moment(ns: int) -> str:
    seconds, fraction = divmod(ns, 10**9)
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds)) + f".{fraction:09d} UTC"


def _table(name: str, columns: Sequence[tuple[str, str, str]], rows: Sequence[tuple[str, Document]], width: int) -> str:
    """Return a table with columns as wide as needed; the first one is left-aligned, the others are right-aligned.

    If that is too wide, every row becomes a list.
    """
    headings = [name, *(heading for heading, _, _ in columns)]
    cells = [
        [row, *("-" if values[key] is None else format(values[key], form) for _, key, form in columns)]
        for row, values in rows
    ]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) > width:
        widest = max(map(len, headings))
        lists = ((row, zip(headings[1:], rest, strict=True)) for row, *rest in cells)
        return "\n".join(
            "\n".join([row, *(f"  {heading:<{widest}} {cell}" for heading, cell in named)]) for row, named in lists
        )
    return "\n".join(
        "  ".join([row.ljust(widths[0]), *(cell.rjust(wide) for cell, wide in zip(rest, widths[1:], strict=True))])
        for row, *rest in (headings, *cells)
    )


def _warnings(counts: "CaptureCounts") -> Iterator[str]:
    """Yield the warnings about the file itself."""
    if counts.damage:
        where = "" if counts.damaged_at is None else f" at byte {counts.damaged_at:,}"
        yield (
            f"damaged{where}: {counts.damage}. "
            "The counts are those of the frames before it; capture again, or cut the file there."
        )
    if counts.truncated:
        yield (
            f"truncated: {counts.leftover_bytes:,} bytes after the last whole frame are not counted. "
            "The capture was cut off, or is still being written."
        )
    if counts.odd_length_frames:
        yield (
            f"{counts.odd_length_frames:,} frames were captured neither whole nor up to the snap length: "
            "another tool has cut them, or the file is damaged and no number above can be trusted."
        )
    if counts.clock_offset and counts.clock_offset.differs:
        yield (
            "the capture was not stamped by the clock of the sink's machine: delays are wrong by the difference (see "
            "clock)."
        )
    oddities = counts.oddities
    if oddities.wrong_lengths:
        yield (
            f"{oddities.wrong_lengths:,} records state an impossible length on the link: 0, more than 16 MiB, or less "
            "than was captured. They are counted; bytes and Mbit/s are those of the lengths that remain possible. "
            "Capture with another tool if they matter."
        )
    if oddities.unknown_interface:
        yield (
            f"{oddities.unknown_interface:,} frames are counted but not decoded, because the file does not describe "
            "their interface. Write the file again with the tool that captured it."
        )
    if oddities.dropped:
        yield (
            f"{oddities.dropped:,} frames are not in the file, because the capturing side dropped them: missing frames "
            "may be among these. Capture with a larger buffer or a shorter snap length."
        )
    if counts.undecoded:
        yield (
            f"{sum(counts.undecoded.values()):,} frames were not decoded and may belong to a stream: "
            f"{_kinds(counts.undecoded)}. Capture where frames are Ethernet or IP without these headers."
        )
