"""What this host can run, what it lacks, and the exact command that adds it."""
