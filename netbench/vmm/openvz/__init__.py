"""Containers of OpenVZ and Virtuozzo."""
