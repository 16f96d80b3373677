"""Parameters of pktgen: the options of a source, the frames of a trial, and the rates it can pace.

The delay between frames is a whole number of nanoseconds. Frame i of a run is due i − 1 delays after its start: `spin`
in the kernel's net/core/pktgen.c adds the delay to the due time of the previous frame, however late that was sent.
Lateness is therefore caught up and never accumulates.
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, Self

from pydantic import BaseModel, Field, NonNegativeInt, model_validator

from netbench.generators.pktgen.packet_settings import address_settings
from netbench.model.frame_size import FCS_BYTES, FrameSize
from netbench.model.packet import PLAIN_PACKET, FieldRef, Packet, SteppedValues, VaryingField
from netbench.model.traffic import NS_PER_S, Traffic
from netbench.model.units import l1_bits

# `num_arg` in net/core/pktgen.c reads ten digits of a number and ignores the others.
LONGEST_DELAY_NS = 9_999_999_999
# pktgen interprets this delay as "never": `pktgen_if_write` in net/core/pktgen.c.
_NEVER_NS = 0x7FFF_FFFF

NO_DELAY = "0"  # as fast as possible

Pacing = Literal["lattice", "ratep", "schlosser2011"]

_FIRST_FLOW_PORT = 1024
_LAST_PORT = 65_535

# Commands of a device with their arguments, and flags, in capitals, with `on` or `off`.
Settings = Mapping[str, str]


class PktGenOptions(BaseModel, extra="forbid"):
    """Options of the sources."""

    cpus: tuple[NonNegativeInt, ...] = ()  # CPUs of the kernel threads that send, least used first; empty: any
    """CPUs of the kernel threads that send. Default: any."""
    pacing: Pacing = "lattice"
    """lattice: nearest delay in whole ns. ratep: as the kernel truncates it. schlosser2011: the paper's 8000 × (s + 24)
    ÷ b ns."""
    xmit_mode: Literal["start_xmit", "queue_xmit"] = "start_xmit"  # to the driver, or through the queueing discipline
    """To the driver, or through the queueing discipline."""
    # Options that make `max` faster, and do not affect loads with a rate:
    timestamps: Literal["paced", "always"] = "paced"  # as in the samples of the kernel
    """paced: frames of `max` bear no time stamp."""
    threads: int = Field(default=1, ge=1)  # kernel threads that send at once, each on a separate CPU
    """Kernel threads of each source, for `max`."""
    clone_skb: int = Field(default=0, ge=0)  # how often a frame is sent before the next one is built
    """Copies of each frame, for `max`; veth refuses them."""
    burst: int = Field(default=1, ge=1)  # copies of a frame handed to the driver at once (`xmit_more`)
    """Copies handed to the driver at once, for `max`; veth refuses them."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.burst > 1 and self.xmit_mode != "start_xmit":
            raise ValueError(
                "burst goes with xmit_mode start_xmit only: a queueing discipline takes one frame at a time"
            )
        if self.cpus and self.threads > len(set(self.cpus)):
            raise ValueError(f"{self.threads} threads need as many CPUs, and cpus names {len(set(self.cpus))}")
        return self

    @property
    def numbered(self) -> bool:
        """Whether frames of `max` have unique numbers: copies do not, and each thread counts from 1."""
        return self.threads == 1 and self.clone_skb <= 1 and self.burst == 1


def device_settings(traffic: Traffic) -> Settings:
    """Return the commands for the frames of a trial and their due times, with their arguments.

    `pkt_size` excludes the FCS. Several flows use consecutive source ports in turn, from a first port drawn from the
    seed: `mod_cur_headers` in the kernel's net/core/pktgen.c, which excludes the largest port.
    """
    frames = {
        "pkt_size": str(traffic.frame_size.only_size - FCS_BYTES),
        "count": str(traffic.frames or 0),
        "delay": str(traffic_delay_ns(traffic)),
    }
    return {**frames, **address_settings(traffic.packet or _plain_packet(traffic), traffic)}


def _plain_packet(traffic: Traffic) -> Packet:
    """Return the plain packet, with the source ports of its flows."""
    ports: tuple[VaryingField, ...] = ()
    if traffic.flows > 1:
        first = random.Random(traffic.seed).randint(_FIRST_FLOW_PORT, _LAST_PORT - traffic.flows)
        ports = (VaryingField(FieldRef("UDP", "sport"), SteppedValues(first, 1, traffic.flows)),)
    return replace(PLAIN_PACKET, vary=ports)


def speed_settings(options: PktGenOptions, *, paced: bool) -> Settings:
    """Return the commands that make a source faster, as set in the profile.

    Without time stamps it is 5 % faster under emulation; the kernel's own samples/pktgen omit them, too.
    Each thread uses a separate queue of the NIC, as in the kernel's samples/pktgen/pktgen_sample02_multiqueue.sh.
    """
    settings = {}
    if options.timestamps == "paced":
        settings["NO_TIMESTAMP"] = "off" if paced else "on"
    if options.threads > 1:
        settings["QUEUE_MAP_CPU"] = "on"
    if options.clone_skb:
        settings["clone_skb"] = str(0 if paced else options.clone_skb)
    if options.burst > 1:
        settings["burst"] = str(1 if paced else options.burst)
    return settings


def traffic_delay_ns(traffic: Traffic) -> int:
    """Return the delay between the frames of a trial in ns; 0 when they are sent as fast as possible."""
    return 0 if traffic.fps is None else delay_ns(traffic.fps, traffic.frame_size)


def delay_ns(fps: float, frame_size: FrameSize, pacing: Pacing = "lattice") -> int:
    """Return the delay between frames, in whole ns, for `fps` frames/s of `frame_size` bytes with FCS.

    - `lattice`: 10⁹ / fps, rounded: the nearest that can be paced.
    - `ratep`: as in pktgen's own command `ratep`, 10⁹ div fps: `pktgen_if_write` in net/core/pktgen.c.
    - `schlosser2011`: 8000 × (s + 24) / b, rounded, for a target bandwidth of b Mbit/s (L1) and frames of s bytes:
      Schlosser, Duelli, Goll, "Performance Comparison of Hardware Virtualization Platforms", section 3.3. With s
      the frame size with FCS it offers (s + 20) / (s + 24) of the target: 4.5 % less at 64 bytes.

    The result is at least 1, because 0 means no pause, and at most LONGEST_DELAY_NS.
    """
    match pacing:
        case "lattice":
            delay = round(NS_PER_S / fps)
        case "ratep":
            delay = NS_PER_S // max(1, round(fps))
        case "schlosser2011":
            mbps = fps * l1_bits(frame_size.mean_bytes) / 1e6
            delay = round(8000 * (frame_size.mean_bytes + 24) / mbps)
    delay = min(max(delay, 1), LONGEST_DELAY_NS)
    return delay + 1 if delay == _NEVER_NS else delay
