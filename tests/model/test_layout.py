"""How a tensor lies in memory, told without its size."""

from __future__ import annotations

import pytest
import torch

from fuzz.model.layout import CONTIGUOUS, KINDS, Layout

SHAPES = [(), (5,), (3, 4), (2, 3, 4)]


@pytest.mark.parametrize(
    ("layout", "kind", "strides", "span"),
    [
        (CONTIGUOUS, "contiguous", (4, 1), 12),
        (Layout(order=(1, 0)), "transposed", (1, 3), 12),
        (Layout(pad=2), "padded", (6, 1), 16),
        (Layout(pad=2, offset=3), "sliced", (6, 1), 16),
        (Layout(step=3), "strided", (12, 3), 34),
        (Layout(offset=1), "misaligned", (4, 1), 12),
        (Layout(expand=(0,)), "expanded", (0, 1), 4),
        (Layout(expand=(1,)), "expanded", (1, 0), 3),
        (Layout(expand=(0, 1)), "expanded", (0, 0), 1),
        (Layout(order=(0, 1), reach=30), "huge", (1 << 30, 1), (2 << 30) + 4),
    ],
)
def test_strides_and_span_of_a_three_by_four(layout: Layout, kind: str, strides: tuple[int, ...], span: int) -> None:
    assert (layout.kind, layout.strides((3, 4)), layout.span((3, 4))) == (kind, strides, span)


def test_every_kind_has_a_name() -> None:
    made = {Layout(reach=1), Layout(expand=(0,)), Layout(order=(1, 0)), Layout(step=2), Layout(pad=1), Layout(offset=1)}
    assert {layout.kind for layout in made | {CONTIGUOUS, Layout(pad=1, offset=1)}} == set(KINDS)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", [CONTIGUOUS, Layout(pad=3), Layout(step=2), Layout(offset=5)])
def test_elements_never_share_memory(layout: Layout, shape: tuple[int, ...]) -> None:
    base = torch.arange(layout.span(shape))
    view = torch.as_strided(base, shape, layout.strides(shape))
    assert view.unique().numel() == view.numel()
    assert int(view.max()) == base.numel() - 1


def test_an_expanded_dim_stores_one_element() -> None:
    assert Layout(expand=(0,)).stored((3, 4)) == (1, 4)
    assert Layout(expand=(0,)).stored((0, 4)) == (0, 4)


def test_an_empty_tensor_spans_nothing() -> None:
    assert Layout(pad=4).span((0, 7)) == 0


@pytest.mark.parametrize(
    ("layout", "rank", "fits"),
    [
        (CONTIGUOUS, 0, True), (Layout(order=(1, 0)), 2, True), (Layout(order=(1, 0)), 3, False),
        (Layout(order=(0, 0)), 2, False), (Layout(expand=(1,)), 1, False), (Layout(expand=(0,)), 1, True),
    ],
)  # fmt: skip
def test_a_layout_fits_tensors_of_its_rank(layout: Layout, rank: int, fits: bool) -> None:
    assert layout.fits(rank) is fits


def test_a_reach_needs_no_order_to_take_effect() -> None:
    assert Layout(reach=30).strides((3, 4)) == (1 << 30, 1)


def test_a_short_reach_never_lets_rows_overlap() -> None:
    """The shrinker lowers a reach bit by bit: rows of 3 elements cannot be 2 apart."""
    assert [Layout(reach=reach).strides((2, 3)) for reach in (1, 2)] == [(3, 1), (4, 1)]
