"""`python -m netbench`."""

from netbench.cli.main import main

main()
