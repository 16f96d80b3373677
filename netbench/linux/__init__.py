"""NICs, bridges and veth pairs, each change in a journal that can undo it."""
