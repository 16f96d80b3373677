"""Sinks: receivers that count frames. tcpdump is the reference."""
