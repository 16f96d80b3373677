"""Guests of VMware ESXi."""
