"""Runs the slices of a campaign in processes of their own, on this machine or on others."""
