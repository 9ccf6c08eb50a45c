"""Plots as plain data, drawn by the pages' SVG template or by matplotlib."""
