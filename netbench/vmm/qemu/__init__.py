"""Guests under QEMU."""
