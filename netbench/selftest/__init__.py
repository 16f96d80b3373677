"""Is the tester right? Units under test whose true behaviour is known, and none at all, are measured like any other."""
