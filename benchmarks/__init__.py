"""Costs of netbench, and comparisons with other tools; separate scripts, see `make bench`."""
