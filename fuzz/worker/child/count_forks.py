"""Has a server from which processes are forked, which imports this last, use huge pages once it has forked often."""

from fuzz.worker.system import MANY_FORKS, use_huge_pages_after

use_huge_pages_after(MANY_FORKS)
