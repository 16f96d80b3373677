"""What neighbours do to the victim, and the victim to them, as plain data: docs/interference.md has the definitions."""
