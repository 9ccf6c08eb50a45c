"""Reproducer: a stand-alone program that shows a finding."""
