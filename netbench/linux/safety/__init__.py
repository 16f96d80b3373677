"""Which interfaces a testbed may take over, and which belong to somebody else."""
