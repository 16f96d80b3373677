"""Finds the frames with described headers in a batch: those with pktgen's header at one of the expected offsets."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from netbench.capture.frames import INVALID_STAMP, LINKS, PKTGEN_BYTES, U32, FrameBatch, LinkHeader, Rows
from netbench.capture.headers import (
    DecodedBatch,
    FrameOrigin,
    StreamFrames,
    frame_sizes,
    set_aside,
    stamped_flush_frames,
)
from netbench.model.frame_template import ExpectedHeaders
from netbench.model.traffic import PKTGEN_MAGIC

_US_PER_S = 1_000_000


def least_snap_length(headers: ExpectedHeaders) -> int:
    """Return how many bytes of each frame must be captured: up to the end of pktgen's header, wherever it may be."""
    return max(headers.template.header_bytes, *(at + PKTGEN_BYTES for at in (0, *headers.also_at)))


def decode_described(batch: FrameBatch, headers: ExpectedHeaders) -> DecodedBatch:
    """Find the frames with pktgen's header where a described packet may have it; the batch must be Ethernet.

    All of them are in one `StreamFrames` without addresses, in the order of the file.
    """
    link = LINKS[batch.link_type]
    assert link.header is LinkHeader.ETHERNET
    sizes, everything = frame_sizes(batch, link), Rows(batch)
    remaining, flush, control = set_aside(everything)
    too_short = remaining.size - remaining.at_least(headers.template.payload_at + PKTGEN_BYTES).size
    found = _Found()
    for at in (headers.template.payload_at, *headers.also_at):
        remaining = found.take(remaining, at, headers.template.payload_at)
        if not remaining.size:
            break
    streams = [frames] if (frames := found.frames(sizes)) else []
    return DecodedBatch(
        sizes, flush.size, stamped_flush_frames(flush), control, too_short, streams, Counter(), Counter(), Counter()
    )


class _Found:
    """The frames with pktgen's header found so far, by its offset."""

    def __init__(self) -> None:
        self._parts: list[tuple[Rows, NDArray[np.uint32], int]] = []

    def take(self, rows: Rows, at: int, usual: int) -> Rows:
        """Take the frames with pktgen's header at byte `at`, and return the others; `usual` is where it should be."""
        whole = rows.at_least(at + PKTGEN_BYTES)
        if not whole.size:
            return rows
        is_pktgen = whole.match(at, PKTGEN_MAGIC, U32)
        if not is_pktgen.any():
            return rows
        matching = whole.where(is_pktgen)
        self._parts.append((matching, matching.words(at + 4, 3), at - usual))
        return rows.none() if matching is rows else rows.without(matching)

    def frames(self, sizes: NDArray[np.int64]) -> StreamFrames | None:
        """Return all of them in the order of the file; None if there are none."""
        if not self._parts:
            return None
        rows, header, shift = self._parts[0]
        shifts = None if len(self._parts) == 1 and not shift else np.full(rows.size, shift)
        if len(self._parts) > 1:
            batch = rows.batch
            every = np.arange(len(batch.frames))
            indices = np.concatenate([rows.of(every) for rows, _, _ in self._parts])
            order = np.argsort(indices)
            rows = Rows(batch, indices[order])
            header = np.concatenate([header for _, header, _ in self._parts])[order]
            shifts = np.concatenate([np.full(rows.size, shift) for rows, _, shift in self._parts])[order]
        fraction = header[:, 2].astype(np.int64)
        sent_us = header[:, 1].astype(np.int64)
        sent_us *= _US_PER_S
        sent_us += fraction
        if fraction.max() >= _US_PER_S:
            sent_us[fraction >= _US_PER_S] = INVALID_STAMP
        return StreamFrames(
            ip_version=4,
            src_ip=0,
            dst_ip=0,
            sequence=header[:, 0].astype(np.int64),
            sizes=rows.of(sizes),
            sent_us=sent_us,
            times_ns=rows.of(rows.batch.times_ns),
            origin=FrameOrigin(rows, shifts),
        )
