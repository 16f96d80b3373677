"""Topology and profile to trials, in order. Pure."""
