"""One trial: set-up, arm, send, drain, counters, accounting, placement of loss, verdict."""
