"""Guests that libvirt starts under QEMU."""
