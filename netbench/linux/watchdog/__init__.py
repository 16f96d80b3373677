"""Undo of changes when the controller has gone: the journal, and the watchdog on hosts over SSH."""
