"""Run: one target until a budget ends, and replay of what was saved."""
