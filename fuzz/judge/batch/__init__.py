"""Judges many solutions side by side, each once: in a folder, or as a service receives them."""
