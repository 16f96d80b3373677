"""Domains of Xen."""
