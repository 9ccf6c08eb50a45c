"""Serves pages and an API over the store and the corpus (`fuzz serve`), which start, stop and resume campaigns.

Names from outside are looked up, never joined to paths; pages escape every text; targets load only from configured
folders, and only in workers.
"""
