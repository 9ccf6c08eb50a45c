"""Makes the backend active in every Python that a test starts."""

from fuzz.backends import cpu

cpu.activate()
