"""Commands, exit codes, and everything printed on a terminal."""
