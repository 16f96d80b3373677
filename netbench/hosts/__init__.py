"""Where commands run: on this machine or in a network namespace of it."""
