"""Packet sources: afpacket (built in)."""
