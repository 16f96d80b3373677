"""Plug-ins that are not part of netbench, added by an extension."""
