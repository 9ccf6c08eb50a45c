"""The base of modes that see the operations of torch."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that torch's compiler need not skip, since nothing in it is ever compiled."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """A guard against the compiler takes 2 us an operation, and the first one imports torch._dynamo in a second."""
        return False
