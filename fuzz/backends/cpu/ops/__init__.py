"""Defines the operations of TTIR: their syntax, their C, and the rules by which analyses treat them."""
