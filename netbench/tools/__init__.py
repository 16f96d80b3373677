"""Tools that run flows between a client and a server in a guest."""
