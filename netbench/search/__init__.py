"""The highest load at which a UUT still does what is asked of it: how it is looked for."""
