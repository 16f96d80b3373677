"""A topology in which this machine itself forwards, between namespaces."""

# The UUTs are to follow.
LOCAL = """
name: local
hosts: {source: {}, here: {kind: local}, sink: {}}
links:
  - {ends: [source/tx1, here/in1], rate: 1Gbit/s}
  - {ends: [here/out1, sink/rx1], rate: 1Gbit/s}
streams:
  - {name: s1, source: source/tx1, ingress: here/in1, egress: here/out1, sink: sink/rx1}
uuts:
"""
