"""What the words and numbers of the report mean."""

from netbench.report.markup import Html, element, join

_Definitions = tuple[tuple[str, str], ...]

_DEFINITIONS: _Definitions = (
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
        "counting point, place",
        "Whatever counts frames on their way from source to sink, such as a NIC, a queue, a bridge, or the guest's own"
        " IP layer; what is between UUT and guest has the name that its VMM gives it. A place names the point, and in"
        " brackets the counter that tells of the loss. What nothing places is “explained by no counter”.",
    ),
    (
        "before, inside, after the guest",
        "Before: at any point up to the guest's virtual NIC. Inside: by the guest's own counters, or between its NICs."
        " After: at any point behind them.",
    ),
    (
        "delay; 90, 99, 99.9 %",
        "From the time stamp that the source put into a frame to its capture at the sink, each frame counted once. A"
        " percentile is the least delay that as large a part of the frames does not exceed.",
    ),
    (
        "PDV, IPDV",
        "Two measures of how delay varies (RFC 5481). PDV: a frame's delay less the smallest of its stream. IPDV: by"
        " how much the delays of two frames with consecutive numbers differ, without sign.",
    ),
    (
        "reordered, extent",
        "A reordered frame arrived after one that was sent later. Its extent is by how many frames it came after the"
        " first such one (RFC 4737).",
    ),
    ("loss run", "Frames sent one after the other that were all lost, up to the next one that arrived (RFC 3357)."),
    (
        "ceiling, tester-limited",
        "The ceiling is the highest rate that sources and sinks manage without a UUT, as the self-test found it. Of a"
        " trial with a load above it nobody can say whether UUT or tester was the limit: it is tester-limited.",
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
_OF_NEIGHBOURS: _Definitions = (
    (
        "neighbour, scenario",
        "A neighbour is another guest on the machine of the UUT, the “second guest” of the paper. A scenario is what"
        " the neighbours do: in “dedicated” there are none, in “shared-idle” they do nothing.",
    ),
    (
        "share of the maximum",
        "What a neighbour is made to forward as a share of the most throughput that one stream of the UUT had with"
        " frames of that size in “shared-idle”.",
    ),
    (
        "most throughput",
        "The highest mean throughput at any load. That of a scenario is compared to that of the baseline, which is"
        " “dedicated” or, where that was not measured, “shared-idle”; they need not be of the same load.",
    ),
    (
        "relative change, isolation index",
        "The most throughput in a scenario ÷ the most in the baseline is the isolation index; less 1 it is the relative"
        " change. Their 95 % intervals are Fieller's, for the ratio of two means that both scatter.",
    ),
    (
        "significant",
        "The 95 % interval leaves out “no change”. Where it does not, there may still be a change; what can be excluded"
        " is one beyond the interval.",
    ),
    (
        "fairness",
        "Jain's index (Σx)² ÷ (n · Σx²) over the shares x of their offered frames that the n guests which forward got"
        " through.",
    ),
)


def definitions(*, neighbours: bool = False) -> Html:
    """Each word with its meaning; those about neighbours where there are any."""
    words = (*_DEFINITIONS, *(_OF_NEIGHBOURS if neighbours else ()))
    return element("dl", *(join((element("dt", word), element("dd", meaning))) for word, meaning in words))
