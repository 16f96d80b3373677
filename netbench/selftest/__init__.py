"""Tests of the tester: it measures units under test with known behaviour, and links without one, like any other."""
