"""A topology with a profile brought up and down as a testbed, and the needs of a host."""
