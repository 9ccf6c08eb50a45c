"""The results as Markdown."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from benchmarks.libraries.measure import disagreement

Found = dict[str, Any]


def calls(found: list[Found]) -> list[Found]:
    return [one for one in found if "name" in one]


def seconds(found: list[Found]) -> float:
    """How long the slowest process took, imports excluded."""
    return max(one["sweep"] for one in found if "sweep" in one)


def worked(found: list[Found]) -> float:
    """Seconds of processor, all processes together."""
    return sum(one["worked"] for one in found if "worked" in one)


def headline(title: str, cold: list[Found], warm: list[Found]) -> str:
    ran = calls(cold)
    failed = sum("failed" in one for one in ran)
    kernels = {kernel for one in ran for kernel in one["kernels"]}
    compiled = sorted(value for one in ran for value in one["compiled"])
    names = {one["name"] for one in ran}
    slowest = f"median {compiled[len(compiled) // 2]:.2f} s, slowest {compiled[-1]:.1f} s" if compiled else "none"
    times = [f"{seconds(one):.1f} s ({worked(one):.1f} s of processor)" for one in (cold, warm)]
    return (
        f"**{title}**: {len(names)} operations, {len(ran)} calls, {failed} of them refused; {len(kernels)} kernels, "
        f"{len(compiled)} specialisations ({slowest}). Two processes, imports excluded: "
        f"{times[0]} with an empty cache, {times[1]} with a full one."
    )


def written(found: list[Found], folder: Path) -> str:
    """One row for each operation: kernels, the worst disagreement for each dtype, and with the interpreter."""
    ordered = sorted(calls(found), key=lambda one: one["name"])
    dtypes = sorted({one["dtype"] for one in ordered}, key=["float32", "bfloat16", "float16"].index)
    lines = [
        "| operation | kernels | " + " | ".join(dtypes) + " | interpreter |",
        "|---|---|" + "---|" * len(dtypes) + "---|",
    ]
    for name, group in groupby(ordered, key=lambda one: one["name"]):
        mine = list(group)
        kernels = {kernel for one in mine for kernel in one["kernels"]}
        cells = [worst([one for one in mine if one["dtype"] == dtype]) for dtype in dtypes]
        lines.append(f"| {name} | {len(kernels)} | {' | '.join(cells)} | {interpreted(name, folder)} |")
    return "\n".join(lines)


def worst(mine: list[Found]) -> str:
    """Against float64, over both shapes: relative to the largest magnitude of each output or gradient."""
    if not mine:
        return "-"
    refused = [one["failed"] for one in mine if "failed" in one]
    if refused:
        return "refused: " + refused[0].replace("|", "/")[:120]
    return f"{max(one['error'] for one in mine):.0e}" if "error" in mine[0] else "ran"


def interpreted(name: str, folder: Path) -> str:
    """The same between compiled and interpreted, float32, the first shape."""
    paths = [folder / f"{name}.{way}.pt" for way in ("compiled", "interpreted")]
    if not all(path.exists() for path in paths):
        return "fails" if paths[0].exists() else "-"
    compiled, slow = (torch.load(path) for path in paths)
    return f"{disagreement(compiled, slow):.0e}"


def timings(fast: list[Found], slow: list[Found]) -> str:
    """Forward and backward, warm."""
    beside = {one["name"]: one for one in calls(slow)}
    lines = ["| forward and backward, warm, float32 | cpu, ms | interpreter, ms | ratio |", "|---|---|---|---|"]
    for one in calls(fast):
        other = beside[one["name"]].get("warm")
        if "warm" in one and other:
            cells = f"{one['warm'] * 1e3:.2f} | {other * 1e3:.0f} | {other / one['warm']:.0f}"
            lines.append(f"| {one['name']} | {cells} |")
    return "\n".join(lines)
