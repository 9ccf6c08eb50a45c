"""Declares targets, and finds and loads them."""
