"""Proves what can be known of a kernel before its C is written."""
