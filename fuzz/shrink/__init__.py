"""Shrinks a case that shows a bug to the least one."""
