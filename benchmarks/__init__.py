"""What netbench costs and how it compares; scripts of their own, see `make bench`."""
