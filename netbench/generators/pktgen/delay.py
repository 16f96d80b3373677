"""The rates pktgen can pace: one frame every whole number of nanoseconds.

Frame i of a run is due i − 1 delays after its start: `spin` in the kernel's net/core/pktgen.c adds the delay to the
time the frame before was due, however late that one was sent. So lateness is caught up and never accumulates.
"""

from typing import Literal

from netbench.model.units import l1_bits

NS_PER_S = 1_000_000_000
# `num_arg` in net/core/pktgen.c reads ten digits of a number and ignores the others.
LONGEST_DELAY_NS = 9_999_999_999
# This delay is taken for "never": `pktgen_if_write` in net/core/pktgen.c.
_NEVER_NS = 0x7FFF_FFFF

Pacing = Literal["lattice", "ratep", "schlosser2011"]


def delay_ns(fps: float, frame_size: int, pacing: Pacing = "lattice") -> int:
    """The delay between frames, in whole ns, that stands for `fps` frames/s of `frame_size` bytes with FCS.

    - `lattice`: 10⁹ / fps, rounded: the nearest that can be paced.
    - `ratep`: as pktgen's own command `ratep` has it, 10⁹ div fps: `pktgen_if_write` in net/core/pktgen.c.
    - `schlosser2011`: 8000 × (s + 24) / b, rounded, for a target bandwidth of b Mbit/s (L1) and frames of s bytes:
      Schlosser, Duelli, Goll, "Performance Comparison of Hardware Virtualization Platforms", section 3.3. With s
      the frame size with FCS it offers (s + 20) / (s + 24) of what is asked for: 4.5 % less at 64 bytes.

    At least 1, as 0 means without a pause, and at most LONGEST_DELAY_NS.
    """
    match pacing:
        case "lattice":
            delay = round(NS_PER_S / fps)
        case "ratep":
            delay = NS_PER_S // max(1, round(fps))
        case "schlosser2011":
            mbps = fps * l1_bits(frame_size) / 1e6
            delay = round(8000 * (frame_size + 24) / mbps)
    delay = min(max(delay, 1), LONGEST_DELAY_NS)
    return delay + 1 if delay == _NEVER_NS else delay


def paced_fps(delay: int) -> float:
    """Frames/s of a delay of `delay` ns."""
    return NS_PER_S / delay
