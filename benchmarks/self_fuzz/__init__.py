"""Fuzzes what this program reads: entries, campaign files, TTIR, the channel of a worker, and requests over HTTP."""

from pathlib import Path

SEEDS = Path(__file__).resolve().parents[2] / "tests" / "benchmarks" / "self_fuzz"
"""A folder of inputs for each surface, which the tests run as well."""
