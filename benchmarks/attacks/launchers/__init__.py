"""Files of launchers that are right, but attack where they get one element; `fuzz run` loads them by path."""
