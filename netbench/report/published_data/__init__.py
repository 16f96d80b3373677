"""Published measurements of others, as data, to compare with one's own."""
