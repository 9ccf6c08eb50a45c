"""Recognises where the wrong elements lie: beyond a row or column, or where an input lies in an interval."""

from __future__ import annotations

import math

import torch

from fuzz.oracles.diagnosis.context import DiagnosisContext

FEWEST_ELEMENTS = 8
"""Elements, rows or columns that a statement about a place must rest on, wrong and right ones together."""


def match_input_interval(context: DiagnosisContext, output: str) -> str:
    """An interval of one input of the same shape that holds the wrong elements and no right one."""
    wrong = context.wrong[output].reshape(-1)
    for name, values in context.inputs.items():
        if values.shape != context.got[output].shape or wrong.numel() < FEWEST_ELEMENTS or bool(wrong.all()):
            continue
        x = values.reshape(-1)
        low, high = float(x[wrong].min()), float(x[wrong].max())
        right = x[~wrong]
        if not math.isfinite(low - high):
            continue
        inside = (right >= low) & (right <= high)
        if bool(inside.any()) or int(wrong.sum()) < 2:
            continue
        count = int(wrong.sum())
        numbers = f"{count} of {count} elements there, 0 of {right.numel()} elsewhere"
        sign = describe_sign(context, output)
        return f"{output} is wrong only {describe_interval(name, low, high, right)} ({numbers}){sign}"
    return ""


def describe_interval(name: str, low: float, high: float, right: torch.Tensor) -> str:
    """The interval in words; a side on which nothing right lies is left out."""
    below, above = bool((right < low).any()), bool((right > high).any())
    if below and above:
        return f"for {name} from {low:.4g} to {high:.4g}"
    return f"for {name} >= {low:.4g}" if below else f"for {name} <= {high:.4g}"


def describe_sign(context: DiagnosisContext, output: str) -> str:
    """Whether it is the sign that is wrong there."""
    wrong = context.wrong[output]
    got, want = context.got[output][wrong], context.want[output][wrong]
    return ", where its sign is flipped" if bool((got * want < 0).all()) else ""


def match_rows_or_columns(context: DiagnosisContext, output: str) -> str:
    """Wrong elements in all rows but only some columns, or the other way round: from one on, or one alone."""
    wrong = context.wrong[output]
    if wrong.dim() == 0 or bool(wrong.all()):
        return ""
    names = ["element"] if wrong.dim() == 1 else ["row", "column"]
    for axis, what in zip(range(wrong.dim() - len(names), wrong.dim()), names, strict=True):
        others = [dim for dim in range(wrong.dim()) if dim != axis]
        hit = wrong.amax(others) if others else wrong
        places, size = hit.nonzero().flatten().tolist(), hit.numel()
        if len(places) == size or size < FEWEST_ELEMENTS:
            continue
        if place := describe_places(places, size, what):
            inside = wrong.numel() * len(places) // size
            return (
                f"{output} is wrong only {place} "
                f"({int(wrong.sum())} of {inside} elements there, 0 of {wrong.numel() - inside} elsewhere)"
            )
    return ""


def describe_places(places: list[int], size: int, what: str) -> str:
    """Rows, columns or elements in words, where they are one, or all from one on or up to one; else empty."""
    if len(places) == 1:
        last = " (the last)" if places[0] == size - 1 else ""
        return f"in {what} {places[0]}{last} of {size}"
    if places == list(range(places[0], size)):
        return f"from {what} {places[0]} of {size} on"
    return f"up to {what} {places[-1]} of {size}" if places == list(range(len(places))) else ""
