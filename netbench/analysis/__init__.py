"""Captures to counts, hops to losses, repetitions to intervals."""
