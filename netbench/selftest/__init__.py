"""Is the tester right? Units under test whose true behaviour is known are measured like any other, and nothing else."""
