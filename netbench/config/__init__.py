"""User input: YAML files and --set are read, checked, and their errors explained."""
