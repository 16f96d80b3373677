"""Packets: their notation, the frames that scapy builds from them, and the values of their varying fields."""
