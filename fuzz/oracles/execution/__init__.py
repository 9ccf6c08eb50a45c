"""Runs the cases that oracles examine: one case, replicas of a plan, and both again with something changed."""
