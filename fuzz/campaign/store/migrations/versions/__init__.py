"""Holds the migrations, one file a step, each naming the one before it."""
