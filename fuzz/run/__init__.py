"""Runs one target until a budget ends, and replays what was saved."""
