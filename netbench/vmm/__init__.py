"""Who starts a guest."""
