"""Shows the real `torch.cuda` to `torch._dynamo` where that is first imported while patches are applied, and applies
those of its own then.

On import it makes a table of torch's functions for the rest of the process, in which no patch belongs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from fuzz.backends.import_hook import ImportHook
from fuzz.backends.triton_host.patching import Patch, patched

NAME = "torch._dynamo"
waiting: list[Callable[[], None]] = []
"""What is called once the module is imported."""


class DynamoFinder(ImportHook):
    """Finds that one module where it is not imported yet. `unpatched()` takes the patches away for a block."""

    def __init__(self, unpatched: Callable[[], AbstractContextManager[object]]) -> None:
        super().__init__(NAME, self.importing)
        self.unpatched = unpatched

    @contextmanager
    def importing(self) -> Iterator[None]:
        with self.unpatched():
            yield
        for apply in waiting:
            apply()


def install(finder: DynamoFinder) -> Callable[[], None]:
    """Installs the finder, unless one is installed that takes all patches away; returns a function that removes it."""
    if NAME in sys.modules or any(isinstance(other, DynamoFinder) for other in sys.meta_path):
        return lambda: None
    sys.meta_path.insert(0, finder)
    return lambda: sys.meta_path.remove(finder)


@contextmanager
def patched_dynamo(patches: Callable[[], Iterable[Patch]]) -> Iterator[None]:
    """Applies patches of that module for a block: at once, or when a finder that is installed has found it."""
    with ExitStack() as stack:

        def apply() -> None:
            stack.enter_context(patched(patches()))

        if NAME in sys.modules:
            apply()
        waiting.append(apply)
        try:
            yield
        finally:
            waiting.remove(apply)
