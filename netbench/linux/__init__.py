"""Linux networking on a machine: changes, recorded in a journal that can undo them, and counters."""
