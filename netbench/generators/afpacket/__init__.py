"""The built-in source: AF_PACKET sockets in a process of its own."""
