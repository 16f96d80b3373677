"""What a neighbour does while the victim is measured."""
