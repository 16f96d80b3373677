"""Doctor."""
