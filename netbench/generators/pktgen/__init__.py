"""The kernel's own packet generator."""
