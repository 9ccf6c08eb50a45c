"""Defines how a tensor lies in memory, independently of its size, so that a layout survives shrinking.

Strides and offsets are in elements. A shape's dims are stored from slowest to fastest in `order`; the fastest dim
steps by `step`, every run of it is followed by `pad` elements, the first element stands `offset` elements after the
buffer's start, dims in `expand` have stride 0, and `reach` > 0 gives the slowest dim a stride of 2**reach elements
(memory that is mapped lazily and never filled).
"""

from __future__ import annotations

from dataclasses import dataclass

SPAN = 1 << 48
"""Elements between the start of a tensor's memory and its last element, at most."""
KINDS = ("contiguous", "transposed", "padded", "sliced", "strided", "misaligned", "expanded", "huge")


@dataclass(frozen=True)
class Layout:
    """Where the elements of a tensor are; the default is contiguous and row-major."""

    order: tuple[int, ...] = ()
    step: int = 1
    pad: int = 0
    offset: int = 0
    expand: tuple[int, ...] = ()
    reach: int = 0

    @property
    def kind(self) -> str:
        """The word of KINDS for what is special about this layout."""
        if self.reach:
            return "huge"
        if self.expand:
            return "expanded"
        if self.order:
            return "transposed"
        if self.step > 1:
            return "strided"
        if self.pad:
            return "sliced" if self.offset else "padded"
        return "misaligned" if self.offset else "contiguous"

    def strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Strides in elements of a tensor of this shape."""
        order = self.order or tuple(range(len(shape)))
        strides = [0] * len(shape)
        run = self.step
        for position, dim in enumerate(reversed(order)):
            if dim in self.expand:
                continue
            strides[dim] = run
            run *= max(shape[dim], 1)
            if position == 0:
                run += self.pad
        if self.reach and order:
            strides[order[0]] = max(1 << self.reach, strides[order[0]])
        return tuple(strides)

    def stored(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the distinct elements: expanded dims hold one."""
        return tuple(min(size, 1) if dim in self.expand else size for dim, size in enumerate(shape))

    def span(self, shape: tuple[int, ...]) -> int:
        """Elements from the first to the last one, both included; 0 for an empty shape."""
        if 0 in shape:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(shape, self.strides(shape), strict=True))

    def fits(self, rank: int) -> bool:
        """Whether this layout can be applied to a tensor of that many dims."""
        named = sorted(self.order)
        return (not named or named == list(range(rank))) and all(0 <= dim < rank for dim in self.expand)


CONTIGUOUS = Layout()


def find_layout(shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Layout | None:
    """The layout with these strides, as far as they matter; None where no layout has them."""
    wide = [dim for dim, size in enumerate(shape) if size > 1]
    expand = tuple(dim for dim in wide if strides[dim] == 0)
    natural = tuple(range(len(shape)))
    by_stride = tuple(sorted(natural, key=lambda dim: (dim in wide and dim not in expand, -strides[dim])))
    for order in ((), by_stride):
        dims = [dim for dim in reversed(order or natural) if dim in wide and dim not in expand]
        step = strides[dims[0]] if dims else 1
        pad = strides[dims[1]] - step * shape[dims[0]] if len(dims) > 1 else 0
        if step < 1 or pad < 0:
            continue
        layout = Layout(order, step, pad, offset, expand)
        found = layout.strides(shape)
        if all(found[dim] == strides[dim] for dim in wide):
            return layout
    return None
