"""The built-in source: AF_PACKET sockets in a separate process."""
