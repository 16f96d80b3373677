"""Data without I/O: units, topology, profile, counts, verdicts."""
