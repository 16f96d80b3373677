"""One trial: set-up, arm, send, drain, counters, accounting, loss attribution, verdict."""
