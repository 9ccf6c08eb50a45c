"""Writes the skeleton of a target's file from a launcher's source, for `fuzz new`."""
