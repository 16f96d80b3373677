"""A topology with a profile made real, and undone; what a host must have."""
