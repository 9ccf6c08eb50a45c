"""Defines judgements, their scores and reason codes, and how people and scripts read them."""
