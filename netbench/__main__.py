"""`python -m netbench`."""

from netbench.cli import main

main()
