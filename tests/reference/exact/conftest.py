"""Every test of exact evaluation runs over balls of Arb, and over numbers of mpmath as if python-flint were missing."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True, params=["balls", "mpmath"])
def arithmetic(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The arithmetic that exact evaluation uses."""
    if request.param == "mpmath":
        monkeypatch.setitem(sys.modules, "flint", None)
    return str(request.param)
