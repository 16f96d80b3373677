"""Hosts, where commands run: this machine, its network namespaces, VMs, guests, and machines over SSH."""
