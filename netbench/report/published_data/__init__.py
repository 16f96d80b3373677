"""Numbers that others published, as data, to be read beside one's own."""
