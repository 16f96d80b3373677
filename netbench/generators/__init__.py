"""Packet sources: afpacket and pktgen, and auto, which chooses between them."""
