"""What the words and numbers of the report mean."""

from netbench.report.markup import Html, element, join

_DEFINITIONS = (
    (
        "frame size",
        "Bytes of an Ethernet frame with its 4-byte checksum. On the wire each frame takes 20 bytes more:"
        " preamble, start delimiter and the gap to the next.",
    ),
    ("Mbit/s, L1", "Bits on the wire, those 20 bytes included: what fills a link. L2 rates leave them out."),
    ("intended load", "What the profile asks each source for. “max” asks for all it can send."),
    (
        "offered load",
        "What the sources really put on the link, divided by the time they really took; all sources of a"
        " trial together.",
    ),
    (
        "unsent",
        "Intended frames that never left the source. The UUT never saw them, so they are not loss.",
    ),
    (
        "throughput",
        "What arrived at the sinks, over the same time as the offered load, each frame counted once.",
    ),
    (
        "loss",
        "Offered frames that did not arrive. Frames that the capture itself dropped are the tester's fault"
        " and make a trial invalid; they are not counted as loss.",
    ),
    (
        "± and error bars",
        "95 % confidence interval of the mean over the valid repetitions (Student's t). With a single valid"
        " repetition there is none: the scatter is unknown, not zero.",
    ),
    (
        "guest CPU, host CPU",
        "CPU time that the guest's own kernel counted, and that the guest cost the host, while the trial sent and"
        " drained, divided by that time. 100 % is one CPU; a guest that uses several can take more.",
    ),
    (
        "emulated",
        "The CPU of this guest was not run by the processor (as under KVM) but imitated by a program. Frames, losses"
        " and where they happened are real; rates, delays and CPU times say how fast the emulator is.",
    ),
    (
        "valid, suspicious, invalid",
        "Each trial is judged. Suspicious: something was found that the counts do not fully explain."
        " Invalid: the trial did not measure what it should. Both are shown, but part of no mean.",
    ),
)


def definitions() -> Html:
    """Each word with its meaning."""
    return element("dl", *(join((element("dt", word), element("dd", meaning))) for word, meaning in _DEFINITIONS))
