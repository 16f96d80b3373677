"""What is measured next, on which boot of which unit under test, and stored."""
