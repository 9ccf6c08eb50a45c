"""Lists all operations that the backend knows."""

from __future__ import annotations

from fuzz.backends.cpu.ops import (
    atomics,
    casts,
    control,
    debug,
    dot,
    dot_scaled,
    elementwise,
    inline_asm,
    memory,
    movement,
    reductions,
)
from fuzz.backends.cpu.ops.definition import OpDef

MODULES = (atomics, casts, control, debug, dot, dot_scaled, elementwise, inline_asm, memory, movement, reductions)
OPERATIONS: dict[str, OpDef] = {op.name: op for module in MODULES for op in module.OPERATIONS}
