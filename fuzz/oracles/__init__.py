"""Finds disagreements, one oracle for each kind. fuzz/model/oracle_specs.py lists them in the order of filing."""

from importlib import import_module

from fuzz.model.oracle_specs import ORACLE_NAMES
from fuzz.oracles.base import Oracle


def _load(name: str) -> Oracle:
    oracle: Oracle = getattr(import_module(f"fuzz.oracles.{name}"), f"{name.capitalize()}Oracle")()
    return oracle


ORACLES: tuple[Oracle, ...] = tuple(_load(name) for name in ORACLE_NAMES)
ALWAYS = tuple(oracle for oracle in ORACLES if not oracle.spec.share)
"""Oracles that examine every case that returns."""
SAMPLED = tuple(oracle for oracle in ORACLES if oracle.spec.share)
"""Oracles that examine a share of the cases."""


def find_oracle(name: str) -> Oracle:
    """The oracle of that name. ValueError where there is none."""
    return ORACLES[ORACLE_NAMES.index(name)]
