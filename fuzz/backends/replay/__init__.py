"""Replay: the launches of one run are repeated on other memory, for many replicas at once."""
