"""From captures to counts, streaming."""
