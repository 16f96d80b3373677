"""The output of `netbench analyze`: the counts of a capture as text or JSON."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from netbench.cli.analyze_doubts import Doubts, duration, stream_name
from netbench.cli.output import width_of, wrapped

if TYPE_CHECKING:
    from netbench.capture.capture_counts import (
        AcrossInterfaces,
        CaptureCounts,
        InterfaceCapture,
        Rate,
        Span,
        StreamCapture,
    )
    from netbench.model.distributions import Spread

_WIDEST_NOTES = 103
_NOTES = """\
Missing and loss runs lie between the lowest and the highest sequence number seen: what was lost before
the first or after the last frame of a stream is not in them. Numbers have 32 bits: one that is nearer
beyond 2^32, where they begin at 0 again, is counted on from there (RFC 1982). Rates are of distinct
frames, (n - 1) / (last - first). Extent is by how many frames a reordered one came after the first with a
higher number (RFC 4737). Delay is capture time - time stamp in the frame: it means something only on
one clock. PDV is delay - least delay; IPDV is how much the delays of frames with consecutive numbers
differ (RFC 5481). Of fewer than 10, 100 or 1,000 frames, the 90 %, 99 % or 99.9 % one is not told."""


def analyze_command(path: Path, as_json: bool) -> str:
    """Return the analysis of the capture at `path` as printable text; UsageError when it cannot be read."""
    from netbench.capture.counting import analyze_capture  # noqa: PLC0415 - --help needs none

    counts = analyze_capture(path)
    return _json(path, counts) if as_json else _text(path, counts, width_of(sys.stdout))


def _json(path: Path, counts: "CaptureCounts") -> str:
    """Return the analysis as JSON: integers for frames, bytes and nanoseconds; null for unknown values."""
    import json  # noqa: PLC0415 - likewise

    doubts, oddities = Doubts(counts), counts.oddities
    document = {
        "file": str(path),
        "format": counts.flavour,
        "link_types": list(dict.fromkeys(interface.link_type for interface in counts.interfaces)) or [counts.link_type],
        "snap_length_bytes": counts.snap_length,
        "frames": counts.frames,
        "pktgen_frames": counts.pktgen_frames,
        "foreign_frames": counts.foreign_frames,
        "control_frames": counts.control_frames,
        "flush_frames": counts.flush_frames,
        "clock_offset_min_ns": counts.clock_offset.least_ns if counts.clock_offset else None,
        "clock_offset_max_ns": counts.clock_offset.most_ns if counts.clock_offset else None,
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
        **_span_json(counts.span, _rate_of_all(counts), trusts_time=doubts.trusts_time()),
        "truncated": counts.truncated,
        "leftover_bytes": counts.leftover_bytes,
        "damaged_at": counts.damaged_at,
        "damage": counts.damage or None,
        "interfaces": [
            _interface_json(interface, trusts_time=doubts.trusts_interface_time(number))
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
        "streams": [_stream_json(counts, number, doubts) for number in range(len(counts.streams))],
        "warnings": list(_warnings(counts, doubts)),
    }
    return json.dumps(document, indent=2)


def _rate_of_all(counts: "CaptureCounts") -> "Rate | None":
    """Return the rate of all frames; None where several interfaces may have captured the same frame."""
    return counts.span.rate(counts.frames) if len(counts.interfaces) <= 1 else None


def _interface_json(interface: "InterfaceCapture", *, trusts_time: bool) -> dict[str, object]:
    span = interface.span
    return {
        "name": interface.name,
        "link_type": interface.link_type,
        "snap_length_bytes": interface.snap_length,
        "frames": span.frames,
        **_span_json(span, span.rate(span.frames), trusts_time=trusts_time),
    }


def _stream_json(counts: "CaptureCounts", number: int, doubts: Doubts) -> dict[str, object]:
    stream = counts.streams[number]
    trusts_order, trusts_loss = doubts.trusts_order(number), doubts.trusts_loss(number)
    extent = stream.reordering_extent if trusts_order else None
    delay, pdv, ipdv = _trusted_spreads(stream, number, doubts)
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
        **_span_json(stream.span, stream.rate, trusts_time=doubts.trusts_stream_time(number)),
        **_spread_json("delay", delay),
        **_spread_json("pdv", pdv),
        **_spread_json("ipdv", ipdv),
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


def _trusted_spreads(
    stream: "StreamCapture", number: int, doubts: Doubts
) -> tuple["Spread | None", "Spread | None", "Spread | None"]:
    """Return delay, PDV and IPDV; None for those that depend on an untrusted clock."""
    delay = stream.delay
    pdv = delay.above_smallest if delay else None
    trusts_variation = doubts.trusts_variation(number)
    return (
        delay if doubts.trusts_delay(number) else None,
        pdv if trusts_variation else None,
        stream.ipdv if trusts_variation else None,
    )


def _spread_json(name: str, spread: "Spread | None") -> dict[str, object]:
    return {
        f"{name}_min_ns": spread.smallest_ns if spread else None,
        f"{name}_mean_ns": spread.mean_ns if spread else None,
        f"{name}_median_ns": spread.median_ns if spread else None,
        f"{name}_p90_ns": spread.p90_ns if spread else None,
        f"{name}_p99_ns": spread.p99_ns if spread else None,
        f"{name}_p999_ns": spread.p999_ns if spread else None,
        f"{name}_max_ns": spread.largest_ns if spread else None,
    }


def _span_json(span: "Span", rate: "Rate | None", *, trusts_time: bool) -> dict[str, object]:
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


def _text(path: Path, counts: "CaptureCounts", width: int) -> str:
    """Return the analysis in lines of at most this width, if words and numbers allow it."""
    doubts = Doubts(counts)
    facts = _facts(counts, trusts_time=doubts.trusts_time())
    parts = [f"{path}\n" + "\n".join(wrapped(f"  {name:<9} ", value, width) for name, value in facts)]
    if len(counts.interfaces) > 1:
        parts += [_table(_INTERFACE_HEADS, list(_interface_rows(counts, doubts)), width)]
    if counts.streams:
        numbers = range(len(counts.streams))
        names = [stream_name(counts, stream) for stream in counts.streams]
        parts += [_table(_COUNT_HEADS, [_count_row(names[n], counts.streams[n], n, doubts) for n in numbers], width)]
        rates = [_rate_row(names[n], counts.streams[n], trusts=doubts.trusts_stream_time(n)) for n in numbers]
        parts += [_table(_RATE_HEADS, rates, width)]
        timed = [row for n in numbers for row in _delay_rows(names[n], counts.streams[n], n, doubts)]
        if counts.across_interfaces:
            parts += [
                _table(_ACROSS_HEADS, [_across_row(stream, doubts) for stream in counts.across_interfaces], width)
            ]
        if timed:
            parts += [_table(_DELAY_HEADS, timed, width)]
        disturbed = [n for n in numbers if counts.streams[n].missing or counts.streams[n].reordered]
        if disturbed:
            parts += [
                _table(_ORDER_HEADS, [_order_row(names[n], counts.streams[n], n, doubts) for n in disturbed], width)
            ]
        parts += [wrapped("", _NOTES, min(width, _WIDEST_NOTES))]
    elif counts.frames:
        decoded = " that could be decoded" if counts.undecoded or counts.too_short_frames else ""
        parts.append(f"No stream found: no frame{decoded} carries pktgen's header (magic 0xbe9be955 after UDP).")
    warnings = [wrapped("WARNING: ", warning, width) for warning in _warnings(counts, doubts)]
    if warnings:
        parts.append("\n".join(warnings))
    return "\n\n".join(parts)


def _facts(counts: "CaptureCounts", *, trusts_time: bool) -> Iterator[tuple[str, str]]:
    snap = "frames not cut" if counts.snap_length is None else f"snap length {counts.snap_length:,} bytes"
    yield "format", "; ".join((counts.flavour, counts.link_type, snap))
    span, rate = counts.span, _rate_of_all(counts)
    yield (
        "frames",
        f"{counts.frames:,}"
        + (f" of {_sizes(span)} bytes with FCS, {span.total_bytes:,} bytes in all" if counts.frames else ""),
    )
    if span.first_ns is not None and span.last_ns is not None and trusts_time:
        yield "time", f"{_moment(span.first_ns)}, for {(span.last_ns - span.first_ns) / 1e9:.6f} s"
    if rate and trusts_time:
        yield (
            "rate",
            f"{rate.fps:,.1f} frames/s, {rate.l1_mbps:,.3f} Mbit/s L1, {rate.l2_mbps:,.3f} Mbit/s L2",
        )
    yield "pktgen", f"{counts.pktgen_frames:,} frames; streams: {len(counts.streams):,}"
    if counts.encapsulated:
        yield "headers", _kinds({" > ".join((*path, "IP")): frames for path, frames in counts.encapsulated.items()})
    yield (
        "foreign",
        f"{counts.foreign_frames:,} frames without pktgen's header"
        + (
            f", of which {counts.too_short_frames:,} were captured too short to have it"
            if counts.too_short_frames
            else ""
        )
        + (f": {_kinds(counts.other_protocols)}" if counts.other_protocols else ""),
    )
    if counts.undecoded:
        yield "undecoded", f"{sum(counts.undecoded.values()):,} of the foreign frames: {_kinds(counts.undecoded)}"
    if counts.control_frames:
        yield "control", f"{counts.control_frames:,} frames by which bridges and others on a link talk to each other"
    if counts.flush_frames:
        yield "flush", f"{counts.flush_frames:,} frames that netbench's sink sent itself to end a capture"
    if counts.clock_offset:
        least, most = duration(counts.clock_offset.least_ns), duration(counts.clock_offset.most_ns)
        yield "clock", f"that of the capture is ahead of that of the sink's machine by {least} to {most}"


def _kinds(frames: Mapping[str, int]) -> str:
    """Return the number of frames of each kind, the most frequent first."""
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(frames.items(), key=lambda item: -item[1]))


_INTERFACE_HEADS = ("Interface", "Frames", "Link type", "Frames/s", "Mbit/s L1", "Mbit/s L2")
_ACROSS_HEADS = ("On several interfaces", "Interfaces", "On any of them", "On none of them")
_COUNT_HEADS = (
    "Stream",
    "Received",
    "Missing",
    "Duplicates",
    "Reordered",
    "Loss runs",
    "Longest",
    "Sequence",
)
_RATE_HEADS = ("Stream", "Size", "Frames/s", "Mbit/s L1", "Mbit/s L2")
_DELAY_HEADS = ("Stream", "", "Min", "Mean", "Median", "90 %", "99 %", "99.9 %", "Max")
_ORDER_HEADS = ("Stream", "Extent: median", "mean", "max", "Loss runs by length")


def _interface_rows(counts: "CaptureCounts", doubts: Doubts) -> Iterator[list[str]]:
    for number, interface in enumerate(counts.interfaces):
        span = interface.span
        rate = span.rate(span.frames) if doubts.trusts_interface_time(number) else None
        yield [interface.name or "unnamed", f"{span.frames:,}", interface.link_type, *_rates(rate)]


def _count_row(name: str, stream: "StreamCapture", number: int, doubts: Doubts) -> list[str]:
    trusts_order, trusts_loss = doubts.trusts_order(number), doubts.trusts_loss(number)
    counts = (
        (stream.received, True),
        (stream.missing, trusts_loss),
        (stream.duplicates, True),
        (stream.reordered, trusts_order),
        (stream.loss_runs, trusts_loss),
        (stream.longest_loss_run, trusts_loss),
    )
    cells = (f"{count:,}" if is_trusted else "-" for count, is_trusted in counts)
    return [name, *cells, f"{stream.min_seq:,}-{stream.max_seq:,}"]


def _across_row(stream: "AcrossInterfaces", doubts: Doubts) -> list[str]:
    missing = f"{stream.missing:,}" if doubts.trusts_loss_across(stream.src_ip, stream.dst_ip) else "-"
    return [f"{stream.src_ip} > {stream.dst_ip}", f"{stream.interfaces:,}", f"{stream.received:,}", missing]


def _rate_row(name: str, stream: "StreamCapture", *, trusts: bool) -> list[str]:
    return [name, _sizes(stream.span), *_rates(stream.rate if trusts else None)]


def _rates(rate: "Rate | None") -> tuple[str, str, str]:
    return (f"{rate.fps:,.1f}", f"{rate.l1_mbps:,.3f}", f"{rate.l2_mbps:,.3f}") if rate else ("-", "-", "-")


def _delay_rows(name: str, stream: "StreamCapture", number: int, doubts: Doubts) -> Iterator[list[str]]:
    spreads = _trusted_spreads(stream, number, doubts)
    if any(spreads):
        for kind, spread in zip(("delay", "PDV", "IPDV"), spreads, strict=True):
            times = _spread_json(kind, spread).values()
            yield [name, kind, *(duration(ns) if isinstance(ns, int | float) else "-" for ns in times)]


def _order_row(name: str, stream: "StreamCapture", number: int, doubts: Doubts) -> list[str]:
    extent = stream.reordering_extent if doubts.trusts_order(number) else None
    extents = (f"{extent.median:,}", f"{extent.mean:,.1f}", f"{extent.largest:,}") if extent else ("-",) * 3
    runs = (
        f"{run.runs:,} of {run.from_frames:,}" + (f"-{2 * run.from_frames - 1:,}" if run.from_frames > 1 else "")
        for run in (stream.loss_run_lengths if doubts.trusts_loss(number) else ())
    )
    return [name, *extents, ", ".join(runs) or "-"]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """Return a table with columns as wide as needed, the first one left-aligned, numbers right-aligned.

    If that is too wide, the first column moves to separate lines; if it still is, every row becomes a list.
    """
    beside = _columns([heads, *rows])
    if _fits(beside, width):
        return beside
    head, *lines = _columns([heads[1:], *(row[1:] for row in rows)]).splitlines()
    stacked, name = [f"  {head}"], ""
    for row, line in zip(rows, lines, strict=True):
        if row[0] != name:
            name = row[0]
            stacked.append(name)
        stacked.append(f"  {line}")
    if _fits("\n".join(stacked), width):
        return "\n".join(stacked)
    widest = max(map(len, heads))
    return "\n".join(
        "\n".join([row[0], *(f"  {head:<{widest}} {cell}" for head, cell in zip(heads[1:], row[1:], strict=True))])
        for row in rows
    )


def _columns(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            [
                line[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
            ]
        )
        for line in lines
    )


def _fits(text: str, width: int) -> bool:
    return max(map(len, text.splitlines())) <= width


def _warnings(counts: "CaptureCounts", doubts: Doubts) -> Iterator[str]:
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
        yield "the capture was stamped by another clock than that of the sink's machine: delays are off by as much."
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
    yield from doubts.warnings()


def _sizes(span: "Span") -> str:
    return f"{span.smallest}" if span.smallest == span.largest else f"{span.smallest}-{span.largest}"


def _moment(ns: int) -> str:
    seconds, fraction = divmod(ns, 10**9)
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds)) + f".{fraction:09d} UTC"
