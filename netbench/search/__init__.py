"""Searches for the highest load at which a UUT meets a goal."""
