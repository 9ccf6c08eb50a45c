"""Multi-scale deformable attention: each query samples two grids at its own places and weighs what it finds there.

Interesting: places on the edges of cells and on the border of a grid, where derivatives jump, and several in one cell.
"""

import torch
import triton
import triton.language as tl

from fuzz import locations, option, size, target, tensor

B, Q, G, D, P = size("B", 1, 4), size("Q", 1, 128), size("G", 1, 4), size("D", 1, 64), size("P", 1, 4)
H1, W1, H2, W2 = size("H1", 1, 32), size("W1", 1, 32), size("H2", 1, 16), size("W2", 1, 16)


CHANNELS = 64
SIZES = ["q", "g", "p", "d", "h1", "w1", "h2", "w2", "border", "align"]
STRIDES = [
    *("value_batch", "value_cell", "value_head", "value_channel"),
    *("place_batch", "place_query", "place_head", "place_level", "place_point", "place_axis"),
    *("weight_batch", "weight_query", "weight_head", "weight_level", "weight_point"),
]
OF_DY = ["dy_batch", "dy_query", "dy_head", "dy_channel"]
INPUTS, GRADIENTS = ["value", "places", "weights"], ["dvalue", "dplaces", "dweights", "dy"]


@triton.jit
def pixel(place, extent, border, align):
    """(position in cells, its derivative) of a place in [0, 1]; at the border itself the derivative is 0."""
    slope = tl.where(align != 0, extent - 1.0, extent * 1.0)
    at = place * slope - tl.where(align != 0, 0.0, 0.5)
    within = (border == 0) | ((at > 0.0) & (at < extent - 1.0))
    at = tl.where(border != 0, tl.minimum(tl.maximum(at, 0.0), extent - 1.0), at)
    return at, tl.where(within, slope, 0.0)


@triton.jit
def part_of(at, cell):
    """How far a position is into its cell; on a GPU `floor` makes 0 of a negative subnormal, which is before it."""
    return tl.maximum(at - cell, 0.0)


@triton.jit
def inside(x, y, width, height):
    return (x >= 0) & (x < width) & (y >= 0) & (y < height)


@triton.jit
def corner(value, x, y, width, height, channels, cell_stride, channel_stride, d):
    """The channels of one cell in float32, 0 outside of the grid."""
    mask = inside(x, y, width, height) & (channels < d)
    cell = (y * width + x).to(tl.int64)
    return tl.load(value + cell * cell_stride + channels * channel_stride, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def seen(part, value, x, y, width, height):
    """What one cell adds up to over channels; 0 outside, where an overflow must not make NaN of it."""
    return tl.where(inside(x, y, width, height), tl.sum(part * value), 0.0)


@triton.jit
def sampled_level(
    total, value, places, weights, place_stride, axis_stride, weight_stride, cell_stride, channel_stride,
    channels, height, width, p, d, border, align,
):  # fmt: skip
    for point in range(p):
        x, _ = pixel(tl.load(places + point * place_stride).to(tl.float32), width, border, align)
        y, _ = pixel(tl.load(places + point * place_stride + axis_stride).to(tl.float32), height, border, align)
        left, top = tl.floor(x), tl.floor(y)
        right_part, bottom_part = part_of(x, left), part_of(y, top)
        x0, y0 = left.to(tl.int32), top.to(tl.int32)
        v00 = corner(value, x0, y0, width, height, channels, cell_stride, channel_stride, d)
        v01 = corner(value, x0 + 1, y0, width, height, channels, cell_stride, channel_stride, d)
        v10 = corner(value, x0, y0 + 1, width, height, channels, cell_stride, channel_stride, d)
        v11 = corner(value, x0 + 1, y0 + 1, width, height, channels, cell_stride, channel_stride, d)
        upper = v00 * (1.0 - right_part) + v01 * right_part
        lower = v10 * (1.0 - right_part) + v11 * right_part
        weight = tl.load(weights + point * weight_stride).to(tl.float32)
        total += weight * (upper * (1.0 - bottom_part) + lower * bottom_part)
    return total


@triton.jit
def backward_level(
    grad, dvalue, dplaces, dweights, value, places, weights, place_stride, axis_stride, weight_stride,
    cell_stride, channel_stride, channels, height, width, p, d, dcell_stride,
    border, align,
):  # fmt: skip
    for point in range(p):
        x, x_slope = pixel(tl.load(places + point * place_stride).to(tl.float32), width, border, align)
        y, y_slope = pixel(tl.load(places + point * place_stride + axis_stride).to(tl.float32), height, border, align)
        left, top = tl.floor(x), tl.floor(y)
        right_part, bottom_part = part_of(x, left), part_of(y, top)
        left_part, top_part = 1.0 - right_part, 1.0 - bottom_part
        x0, y0 = left.to(tl.int32), top.to(tl.int32)
        v00 = corner(value, x0, y0, width, height, channels, cell_stride, channel_stride, d)
        v01 = corner(value, x0 + 1, y0, width, height, channels, cell_stride, channel_stride, d)
        v10 = corner(value, x0, y0 + 1, width, height, channels, cell_stride, channel_stride, d)
        v11 = corner(value, x0 + 1, y0 + 1, width, height, channels, cell_stride, channel_stride, d)
        weight = tl.load(weights + point * weight_stride).to(tl.float32)
        upper = v00 * left_part + v01 * right_part
        lower = v10 * left_part + v11 * right_part
        tl.store(dweights + point, tl.sum(grad * (upper * top_part + lower * bottom_part)))
        part = grad * weight
        s00 = seen(part, v00, x0, y0, width, height)
        s01 = seen(part, v01, x0 + 1, y0, width, height)
        s10 = seen(part, v10, x0, y0 + 1, width, height)
        s11 = seen(part, v11, x0 + 1, y0 + 1, width, height)
        along_x = (s01 * top_part - s00 * top_part) + (s11 * bottom_part - s10 * bottom_part)
        along_y = (s10 * left_part - s00 * left_part) + (s11 * right_part - s01 * right_part)
        # Where the slope is 0, an overflow must not make NaN of it.
        tl.store(dplaces + 2 * point, tl.where(x_slope == 0.0, 0.0, along_x * x_slope))
        tl.store(dplaces + 2 * point + 1, tl.where(y_slope == 0.0, 0.0, along_y * y_slope))
        add(dvalue, x0, y0, width, height, channels, dcell_stride, d, part * (left_part * top_part))
        add(dvalue, x0 + 1, y0, width, height, channels, dcell_stride, d, part * (right_part * top_part))
        add(dvalue, x0, y0 + 1, width, height, channels, dcell_stride, d, part * (left_part * bottom_part))
        add(dvalue, x0 + 1, y0 + 1, width, height, channels, dcell_stride, d, part * (right_part * bottom_part))


@triton.jit
def add(dvalue, x, y, width, height, channels, cell_stride, d, part):
    """Adds a part to the gradient of one cell, which other places may share."""
    mask = inside(x, y, width, height) & (channels < d)
    cell = (y * width + x).to(tl.int64)
    tl.atomic_add(dvalue + cell * cell_stride + channels, part, mask=mask)


@triton.jit(do_not_specialize=[*SIZES, *STRIDES], do_not_specialize_on_alignment=["y", *INPUTS])
def forward_kernel(
    y, value, places, weights, q, g, p, d, h1, w1, h2, w2,
    value_batch, value_cell, value_head, value_channel,
    place_batch, place_query, place_head, place_level, place_point, place_axis,
    weight_batch, weight_query, weight_head, weight_level, weight_point,
    border, align, CHANNELS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    head, query, batch = program % g, program // g % q, program // g // q
    channels = tl.arange(0, CHANNELS)
    value += batch * value_batch + head * value_head
    places += batch * place_batch + query * place_query + head * place_head
    weights += batch * weight_batch + query * weight_query + head * weight_head
    total = tl.zeros([CHANNELS], dtype=tl.float32)
    second = h1 * w1
    for level in range(2):
        height, width = tl.where(level == 0, h1, h2), tl.where(level == 0, w1, w2)
        total = sampled_level(
            total, value + level * second * value_cell, places + level * place_level, weights + level * weight_level,
            place_point, place_axis, weight_point, value_cell, value_channel,
            channels, height, width, p, d, border, align,
        )  # fmt: skip
    tl.store(y + program * d + channels, total, mask=channels < d)


@triton.jit(do_not_specialize=[*SIZES, *OF_DY, *STRIDES], do_not_specialize_on_alignment=[*INPUTS, *GRADIENTS])
def backward_kernel(
    dvalue, dplaces, dweights, dy, value, places, weights, q, g, p, d, h1, w1, h2, w2,
    dy_batch, dy_query, dy_head, dy_channel,
    value_batch, value_cell, value_head, value_channel,
    place_batch, place_query, place_head, place_level, place_point, place_axis,
    weight_batch, weight_query, weight_head, weight_level, weight_point,
    border, align, CHANNELS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    head, query, batch = program % g, program // g % q, program // g // q
    channels = tl.arange(0, CHANNELS)
    dy += batch * dy_batch + query * dy_query + head * dy_head
    grad = tl.load(dy + channels * dy_channel, mask=channels < d, other=0.0).to(tl.float32)
    value += batch * value_batch + head * value_head
    dvalue += (batch * (h1 * w1 + h2 * w2) * g + head) * d
    places += batch * place_batch + query * place_query + head * place_head
    weights += batch * weight_batch + query * weight_query + head * weight_head
    dweights += program * 2 * p
    dplaces += program * 4 * p
    first = h1 * w1
    for level in range(2):
        height, width = tl.where(level == 0, h1, h2), tl.where(level == 0, w1, w2)
        backward_level(
            grad, dvalue + level * first * g * d, dplaces + level * 2 * p, dweights + level * p,
            value + level * first * value_cell, places + level * place_level, weights + level * weight_level,
            place_point, place_axis, weight_point, value_cell, value_channel,
            channels, height, width, p, d, g * d, border, align,
        )  # fmt: skip


class DeformableAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, places, weights, grids, border, align):
        batch, _, heads, channels = value.shape
        queries, points = places.shape[1], places.shape[4]
        (h1, w1), (h2, w2) = grids
        y = torch.empty((batch, queries, heads, channels), dtype=value.dtype, device=value.device)
        forward_kernel[(batch * queries * heads,)](
            y, value, places, weights, queries, heads, points, channels, h1, w1, h2, w2,
            *value.stride(), *places.stride(), *weights.stride(),
            border, align, CHANNELS=CHANNELS,
        )  # fmt: skip
        ctx.save_for_backward(value, places, weights)
        ctx.grids, ctx.border, ctx.align = grids, border, align
        return y

    @staticmethod
    def backward(ctx, dy):
        value, places, weights = ctx.saved_tensors
        batch, _, heads, channels = value.shape
        queries, points = places.shape[1], places.shape[4]
        (h1, w1), (h2, w2) = ctx.grids
        dvalue = torch.zeros(value.shape, dtype=torch.float32, device=value.device)
        dplaces = torch.empty(places.shape, dtype=places.dtype, device=value.device)
        dweights = torch.empty(weights.shape, dtype=weights.dtype, device=value.device)
        backward_kernel[(batch * queries * heads,)](
            dvalue, dplaces, dweights, dy, value, places, weights, queries, heads, points, channels, h1, w1, h2, w2,
            *dy.stride(), *value.stride(), *places.stride(), *weights.stride(),
            ctx.border, ctx.align, CHANNELS=CHANNELS,
        )  # fmt: skip
        return dvalue.to(value.dtype), dplaces, dweights, None, None, None


def position(place, extent, padding, align_corners):
    """A place in cells, by as many steps as grid_sample takes, but for 2 * place - 1, which loses what is near 0.

    The more steps are perturbed, the surer the envelope has both sides of an edge that rounding may cross.
    """
    at = (2 * place * (extent - 1) if align_corners else 2 * place * extent - 1) * 0.5
    if padding == "border":
        at = torch.where((at > 0) & (at < extent - 1), at, at.detach().clamp(0, extent - 1))
    return at


def sampled(cells, x, y, width, height):
    """Bilinear samples (.., places, channels) of cells (.., height * width, channels); 0 outside."""
    left, top = torch.floor(x.detach()), torch.floor(y.detach())
    columns, column_parts = torch.stack([left, left + 1], -1), torch.stack([left + 1 - x, x - left], -1)
    rows, row_parts = torch.stack([top, top + 1], -1), torch.stack([top + 1 - y, y - top], -1)
    inside = ((rows >= 0) & (rows < height)).unsqueeze(-1) & ((columns >= 0) & (columns < width)).unsqueeze(-2)
    places = rows.to(torch.int64).unsqueeze(-1) * width + columns.to(torch.int64).unsqueeze(-2)
    cell = torch.where(inside, places, 0).flatten(2)
    part = torch.where(inside, row_parts.unsqueeze(-1) * column_parts.unsqueeze(-2), 0.0).flatten(3)
    found = cells.gather(2, cell.unsqueeze(-1).expand(*cell.shape, cells.shape[-1]))
    return (part.unsqueeze(-1) * found.unflatten(2, part.shape[2:])).sum(-2)


def reference(value, places, weights, padding, align_corners, h1, w1, h2, w2):
    batch, _, heads, channels = value.shape
    queries, points = places.shape[1], places.shape[4]
    y = 0.0
    for level, (height, width) in enumerate(((h1, w1), (h2, w2))):
        cells = (value[:, h1 * w1 :] if level else value[:, : h1 * w1]).transpose(1, 2)
        place = places[:, :, :, level].transpose(1, 2).reshape(batch, heads, queries * points, 2)
        along_x, along_y = (
            position(place[..., axis], extent, padding, align_corners) for axis, extent in ((0, width), (1, height))
        )
        weight = weights[:, :, :, level].transpose(1, 2).reshape(batch, heads, queries * points, 1)
        found = sampled(cells, along_x, along_y, width, height) * weight
        y = y + found.reshape(batch, heads, queries, points, channels).sum(3)
    return dict(y=y.transpose(1, 2))


@target(
    value=tensor(B, H1 * W1 + H2 * W2, G, D),
    places=locations(B, Q, G, 2, P, 2, grids=((H1, W1), (H2, W2)), align="align_corners"),
    weights=tensor(B, Q, G, 2, P),
    padding=option("zeros", "border"),
    align_corners=option(False, True),
    h1=H1, w1=W1, h2=H2, w2=W2,
    differentiable=dict(y=tensor(B, Q, G, D)),
    deterministic="places add to a cell's gradient in the order in which programs run",
    rows=dict(y=B, dplaces=B, dweights=B),
    rejects=dict(short_weights=lambda weights, **others: dict(weights=weights[:, :-1])),
    reference=reference,
)  # fmt: skip
def msda(value, places, weights, padding, align_corners, h1, w1, h2, w2):
    if value.dim() != 4 or value.shape[1] != h1 * w1 + h2 * w2 or places.shape[:-1] != weights.shape:
        shapes = [tuple(part.shape) for part in (value, places, weights)]
        raise ValueError(f"shapes do not fit: value {shapes[0]}, places {shapes[1]}, weights {shapes[2]}")
    grids = (h1, w1), (h2, w2)
    return dict(
        y=DeformableAttention.apply(value, places, weights, grids, int(padding == "border"), int(align_corners))
    )


msda.planted(
    "border_clamped_before_weights",
    oracle="accuracy",
    outputs=("y", "dvalue", "dweights", "dplaces"),
    meaning="cells are clamped to the grid before they are weighed, so that zeros outside count as the border",
    change=(
        ("    mask = inside(x, y, width, height) & (channels < d)\n    cell = (y * width + x).to(tl.int64)\n    return",
         "    x, y = tl.minimum(tl.maximum(x, 0), width - 1), tl.minimum(tl.maximum(y, 0), height - 1)\n"
         "    mask = channels < d\n    cell = (y * width + x).to(tl.int64)\n    return"),
    ),
)  # fmt: skip
msda.planted(
    "gradient_kept_outside_border",
    oracle="accuracy",
    outputs=("dplaces",),
    meaning="a place that was clamped to the border keeps its gradient",
    change=("tl.where(within, slope, 0.0)", "slope"),
)
msda.planted(
    "corners_off_by_half",
    oracle="accuracy",
    outputs=("y", "dvalue", "dplaces", "dweights"),
    meaning="with align_corners places are taken half a cell too low",
    change=("tl.where(align != 0, 0.0, 0.5)", "0.5"),
)
msda.planted(
    "add_not_atomic",
    oracle="bounds",
    outputs=("dvalue",),
    meaning="of two programs that add to one cell at a time, one is lost",
    change=(
        "tl.atomic_add(dvalue + cell * cell_stride + channels, part, mask=mask)",
        "spot = dvalue + cell * cell_stride + channels\n"
        "    tl.store(spot, tl.load(spot, mask=mask, other=0.0) + part, mask=mask)",
    ),
)
msda.planted(
    "one_place_a_cell",
    oracle="accuracy",
    outputs=("dvalue",),
    meaning="of several places in one cell only the last one counts",
    change=(
        "tl.atomic_add(dvalue + cell * cell_stride + channels, part, mask=mask)",
        "tl.atomic_xchg(dvalue + cell * cell_stride + channels, part, mask=mask)",
    ),
)
msda.planted(
    "swapped_xy",
    oracle="accuracy",
    outputs=("y",),
    meaning="x and y of a place change roles",
    change=(
        (
            "x, _ = pixel(tl.load(places + point * place_stride)",
            "x, _ = pixel(tl.load(places + point * place_stride + axis_stride)",
        ),
        (
            "y, _ = pixel(tl.load(places + point * place_stride + axis_stride)",
            "y, _ = pixel(tl.load(places + point * place_stride)",
        ),
    ),
)
msda.planted(
    "swapped_xy_gradients",
    oracle="accuracy",
    outputs=("dplaces",),
    meaning="the gradients of x and y change places",
    change=(
        ("dplaces + 2 * point, tl.where(x_slope", "dplaces + 2 * point + 1, tl.where(x_slope"),
        ("dplaces + 2 * point + 1, tl.where(y_slope", "dplaces + 2 * point, tl.where(y_slope"),
    ),
)
msda.planted(
    "wrong_level_offset",
    oracle="accuracy",
    outputs=("y",),
    meaning="the second grid is looked for one row of cells too early",
    change=("second = h1 * w1", "second = (h1 - 1) * w1"),
)
