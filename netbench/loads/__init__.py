"""What a neighbour does beside forwarding."""
