"""The texts of all reasons against a trial: effect, cause and remedy, with places for the numbers."""

from netbench.model.verdict import Reason, ReasonKind

_TESTER_DISTURBED = {
    "stalled": "{who} was kept from running for {stalled_ms:,.0f} ms of {duration_s:g} s ({threads}; limit "
    "{limit_ms:,.0f} ms); stop other programs on this machine, or give netbench CPUs of its own",
    "throttled": "a CPU limit stopped netbench's control group for {throttled_ms:,.0f} ms (all CPUs added up) of "
    "{duration_s:g} s, more than {limit_ms:,.0f} ms; run netbench without the limit",
}
_TESTER_LIMITED = {
    "beyond_ceiling": "a load of {fps:,.0f} frames/s is {where} {ceiling_fps:,.0f} frames/s, which the self-test found "
    "{sources} and its sink to manage here at {size} without a UUT: the tester may be the limit; offer less, or give "
    "it more CPUs and run the self-test again",
}
_TESTER_DROPPED = {
    "lost_at_sink": "{frames:,} frames were lost at the {place}: the tester's loss",
    "dropped_at_tester": "{counter} dropped {frames:,} frames at the {point}: not the UUT's doing; remove it",
}
_OFFERED = (
    "offered {offered:,.0f} of {intended:,.0f} frames/s ({off:+.2%}, tolerance {tolerance:.2%}); {frames:,} frames "
    "took {took_s:.3f} s{why}"
)
_BACKPRESSURE = "backpressure by its link for {link_s:.3f} s of {took_s:.3f} s"
# Why a source, and not its link, is to blame for unsent frames.
FAULTS = {
    "away": "the source did not run for {away_s:.3f} s of that, although it had frames to send",
    "uneven": "it was unsteady: up to {unevenness:.0%} of its frames ahead of an even rate, or behind",
    "slow": "backpressure by its link for {link_s:.3f} s only: the source itself is too slow",
}
_UNEVEN_PACING = {
    "stopped": "the source was stopped for {late_ms:,.0f} ms",
    "burst": "the source fell {late_ms:,.0f} ms behind and caught up with up to {burst:,} frames back to back: the "
    "burst may have caused loss",
}
_SOURCES_APART = {
    "threads_apart": "the threads of the source began or ended {apart_ms:,.0f} ms apart, so its rate is not that of "
    "all of them; a longer duration makes this small",
    "sources_apart": "{sources} sources began {began_ms:,.0f} ms and ended {ended_ms:,.0f} ms apart: all sent at once "
    "for {overlap_s:.3f} s of {any_s:.3f} s, so the sum of their rates is that of no moment; a longer duration makes "
    "this small",
}
_NOT_DRAINED = {
    "still_moving": "counters still moved {limit_s:g} s after the last frame",
    "unsettled": "{unsettled}",
}
_LINK_CHANGED = {
    "nic_gone": "{role} NIC {interface} is gone",
    "nic_replaced": "{role} NIC {interface} was replaced or its counters were reset{mac}",
    "mac_changed": "{role} NIC {interface} has the MAC address {now}, and had {before} when the UUT became ready; find "
    "out what changed it (udev, NetworkManager) and run the campaign again",
    "addressed_elsewhere": "{frames:,} frames to {mac} were dropped at the {point} as frames for another MAC address: "
    "compare the address of that NIC with this one",
}
_UNEXPLAINED_FRAMES = {
    "unexplained": "{frames:,} frames are explained by no counter{hints}",
    "overcounted": "counters of drops on the way exceed the loss by {frames:,} frames: they counted frames of others "
    "as well",
    "counter_changed": "{counter} at the {point}, {why}: where frames were lost is uncertain",
}
# What may explain unexplained frames, in this order.
HINTS = {
    "uncaptured": "; the sink's NIC received {frames:,} frames that the sink did not count: frames of others, or the "
    "stream's own, corrupted or lost before the capture",
    "rewritten": "; as many copies may be frames whose sequence number was rewritten on the way",
    "reset": "; {counter} at the {point} explains them if its counter was reset meanwhile",
}
_MESSAGES: dict[ReasonKind, dict[str, str]] = {
    ReasonKind.TESTER_DISTURBED: _TESTER_DISTURBED,
    ReasonKind.TESTER_LIMITED: _TESTER_LIMITED,
    ReasonKind.TESTER_DROPPED: _TESTER_DROPPED,
    ReasonKind.GENERATOR_FAILED: {"generator_failed": "{error}"},
    ReasonKind.NOTHING_SENT: {"nothing_sent": "the generator sent no frame"},
    ReasonKind.GENERATOR_ERRORS: {"generator_errors": "{errors} sends failed"},
    ReasonKind.OFFERED_OUT_OF_TOLERANCE: {"out_of_tolerance": _OFFERED},
    ReasonKind.SATURATED: {
        "saturated": f"{_OFFERED}; {_BACKPRESSURE}",
        "neighbour_saturated": _BACKPRESSURE,
    },
    ReasonKind.UNEVEN_PACING: _UNEVEN_PACING,
    ReasonKind.SOURCES_APART: _SOURCES_APART,
    ReasonKind.NEIGHBOUR_STOPPED_EARLY: {
        "neighbour_absent": "neighbour {neighbour} sent nothing during {missed_s:.3f} s of what the victim's sources "
        "took",
    },
    ReasonKind.NEIGHBOUR_LOAD_FAILED: {
        "load_idle": "neighbour {neighbour}: its load used no CPU time during the trial",
    },
    ReasonKind.SHARE_OF_LOWER_BOUND: {
        "share_of_less": "{who} is offered a share of a lower bound of the maximum, which is limited by {limit}",
    },
    ReasonKind.LESS_THAN_SHARE: {
        "less_than_share": "{load} exceeds the rate that the sources hold: they offered this rate instead",
    },
    ReasonKind.BUFFERED: {
        "buffered": "{buffered:,} of {sent:,} frames were still in queues when sending ended, so the loss is too low; "
        "send for {enough_s:,} s or longer (duration)",
    },
    ReasonKind.CLOCK_SET: {
        "clock_set": "{whose} was set by {set_s:+,.6f} s: times stamped into frames mean nothing",
    },
    ReasonKind.NOT_DRAINED: _NOT_DRAINED,
    ReasonKind.CAPTURE_DISK_FULL: {"no_room": "{no_room}"},
    ReasonKind.CAPTURE_FAILED: {"capture_failed": "{error}"},
    ReasonKind.CAPTURE_DROPPED: {"capture_dropped": "{sink} dropped {frames:,} frames: the tester's loss"},
    ReasonKind.CAPTURE_DROPS_UNKNOWN: {
        "drops_unknown": "{sink} does not report its own drops: how many of the {frames:,} missing frames the UUT lost "
        "is unknown",
    },
    ReasonKind.LINK_CHANGED: _LINK_CHANGED,
    ReasonKind.LINK_DOWN: {"link_down": "{role} NIC {interface} lost its link"},
    ReasonKind.LINK_UNKNOWN: {
        "link_unknown": "{role} NIC {interface} had its link before and after; its kernel does not count changes in "
        "between",
    },
    ReasonKind.FOREIGN_FRAMES: {"foreign_frames": "{frames:,} frames {where} are not this stream's{elsewhere}"},
    ReasonKind.FOREIGN_PROGRAM: {
        "foreign_program": "{program} is not netbench's and may have dropped {frames:,} frames; remove it",
    },
    ReasonKind.LATE_FRAMES: {
        "late_frames": "{frames:,} frames of an earlier trial arrived only now, and it counted them as lost; raise "
        "drain_limit above the longest delay of the UUT",
    },
    ReasonKind.DUPLICATE_FRAMES: {"duplicate_frames": "{frames:,} frames arrived more than once"},
    ReasonKind.UNEXPLAINED_FRAMES: _UNEXPLAINED_FRAMES,
}
_KINDS = {name: kind for kind, texts in _MESSAGES.items() for name in texts}


def reason(name: str, stream: str = "", /, **values: object) -> Reason:
    """Return the reason with the message of this name; `stream` is empty if it concerns the whole trial."""
    kind = _KINDS[name]
    return Reason(kind, stream, _MESSAGES[kind][name].format_map(values))
