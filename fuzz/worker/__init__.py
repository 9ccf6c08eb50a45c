"""Runs backends in processes of their own, and defines what is sent to them."""
