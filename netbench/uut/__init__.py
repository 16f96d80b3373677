"""Units under test: raw, reference, external."""
