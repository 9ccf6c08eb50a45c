"""Attacks on every surface of this program, and a command that runs them and counts those that hold: `make attacks`.

Each attack says what it does and, before it runs, what it means that it holds. It has a folder for home, temporary
files, cache and work of its own, and a time that it may take; every process that it leaves is found and ended.
"""
