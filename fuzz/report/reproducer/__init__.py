"""Writes the stand-alone program that shows a finding."""
