"""Random small Triton kernels, compiled by the cpu backend and compared bit for bit with numpy.

A seed gives a tree (`draw`, `elementwise`, `structure`, `memory`, `statements`), which becomes the text of a Triton
kernel (`source`), compiled many at a time (`build`), and the contents of memory after it ran (`evaluate`, `operations`,
`arithmetic`); `check` compares the two, `shrink` makes what differs small, `__main__` does that for many seeds.
"""

from . import elementwise, memory, structure  # noqa: F401  (they register)
