"""What netbench does not have, added to it from outside."""
