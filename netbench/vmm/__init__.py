"""Drivers that start guests: virtual machine monitors and container runtimes."""
