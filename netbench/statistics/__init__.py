"""Aggregates, intervals, ratios, interference: numbers from stored trials."""
