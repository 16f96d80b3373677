"""The counters of a Linux machine, and the points of the path at which they count."""
