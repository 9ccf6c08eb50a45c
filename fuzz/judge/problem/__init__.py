"""Describes a problem, whatever its format; makes a target of it, and cases in the domain that it declares."""
