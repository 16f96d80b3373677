"""The networks that streams live in. Loads next to nothing, as a short capture is analysed in no more time."""

# RFC 2544, appendix C.2.2 and RFC 6890 reserve 198.18.0.0/15 for benchmarks. Sources live in 198.18.n.0/24,
# sinks in 198.19.n.0/24, n being the stream's number from 1.
PREFIX_LENGTH = 24
