"""Plots of entries and campaigns."""
