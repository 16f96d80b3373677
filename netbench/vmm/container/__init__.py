"""Containers, by LXC, podman or libvirt."""
