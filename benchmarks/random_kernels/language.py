"""Which Triton language the kernels are written in: what its front end makes of them changed with its versions."""

from importlib.metadata import version

TRITON = tuple(int(part) for part in version("triton").split(".")[:2])
"""The version of Triton that is installed, such as (3, 7)."""
