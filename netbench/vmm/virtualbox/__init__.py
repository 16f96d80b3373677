"""Guests under VirtualBox."""
