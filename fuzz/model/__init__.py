"""Defines cases, outcomes, findings and entries as plain data. Nothing here imports torch or triton."""
