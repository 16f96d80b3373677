"""A machine reached through the agent that runs inside it."""
