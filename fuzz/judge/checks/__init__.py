"""Examines a solution beyond the results of single calls: many calls of one module, and its launches."""
