"""`python -m netbench`."""

from netbench.cli.commands import main

main()
