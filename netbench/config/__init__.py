"""What the user wrote: YAML files and --set, read, checked, and explained when wrong."""
