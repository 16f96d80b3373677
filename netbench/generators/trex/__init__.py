"""The generator trex: streams of a TRex server, which owns NICs of its own."""
