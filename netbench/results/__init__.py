"""The store, the manifest of the environment, exports."""
