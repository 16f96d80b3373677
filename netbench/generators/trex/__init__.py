"""The generator trex: streams of a TRex server, which owns its NICs."""
