"""Runs a campaign: selects the next trial, boots the unit under test, measures and stores the result."""
