"""Lanes: what a campaign works on, one target on one backend by one engine with one seed each, and whose turn it is.

Patterns are matched against the text of target files: no target is loaded here, so that one that cannot be loaded
costs its own lane only.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Container, Iterator, Sequence
from fnmatch import fnmatchcase
from glob import glob
from itertools import product
from pathlib import Path

from fuzz.campaign.config import CampaignConfig
from fuzz.campaign.store import Job
from fuzz.errors import UsageError
from fuzz.target.loader import built_in_files, library_files

MEMORY = 0.7
"""How much of what a lane discovered earlier counts, after each slice."""
CURIOSITY = math.sqrt(2)
"""How much being tried less often than others counts, against the discoveries of the best lane: that of UCB1."""
FINDING = 20
"""A new finding counts as so many newly visited cells."""


def create_jobs(config: CampaignConfig, campaign: int) -> list[Job]:
    """Every lane of a configuration. UsageError for a pattern that no target fits.

    Where no seeds are given there are as many as it takes for every worker to have a lane.
    """
    good = [(target, "") for target in chosen(config.targets)]
    bad = [_planted(text) for text in config.planted]
    each = (len(good) + len(bad)) * len(config.backends) * len(config.engines)
    seeds = config.seeds or range(-(-config.workers // each))
    return [
        Job(campaign, target, planted, backend, engine, seed)
        for (target, planted), backend, engine, seed in product([*good, *bad], config.backends, config.engines, seeds)
    ]


def _planted(text: str) -> tuple[str, str]:
    target, _, bug = text.rpartition("+")
    if not target or not bug:
        raise UsageError(f"planted: {text!r} should be TARGET+BUG, such as gelu_bw+erf_saturates")
    return target, bug


def chosen(patterns: Sequence[str]) -> list[str]:
    """The targets that patterns name, each as `fuzz run` takes it; a pattern with ! takes targets out again."""
    everything = list(_published())
    found: dict[str, None] = {}
    for pattern in patterns:
        wanted = pattern.removeprefix("!")
        names = _of_files(wanted) if _is_path(wanted) else [name for name in everything if _fits(name, wanted)]
        if not names:
            raise UsageError(f"targets: no target fits {wanted!r}; fuzz list tells all")
        for name in names:
            if pattern.startswith("!"):
                found.pop(name, None)
            else:
                found[name] = None
    if not found:
        raise UsageError("targets: the patterns leave no target")
    return list(found)


def _is_path(pattern: str) -> bool:
    return pattern.endswith(".py") or ".py:" in pattern


def _fits(name: str, pattern: str) -> bool:
    library, _, rest = name.partition("/")
    return fnmatchcase(name, pattern) or bool(rest) and fnmatchcase(f"{library}_{rest}", pattern)


def _published() -> Iterator[str]:
    """The targets that come with the project: built-in ones by name, those of libraries as ``liger/softmax``."""
    for path in built_in_files():
        yield path.stem
    for path in library_files():
        prefix = f"{path.parent.name}_"
        yield from (f"{path.parent.name}/{name.removeprefix(prefix)}" for name in declared(path, prefix))


def _of_files(pattern: str) -> list[str]:
    """Every target of every file that a pattern fits, as ``path.py:name``."""
    place, _, name = pattern.rpartition(":") if ".py:" in pattern else (pattern, "", "*")
    files = sorted(Path(found) for found in glob(place, recursive=True))
    # A name that is given in full may be a target by a decorator of the file's own.
    whole = name if name.isidentifier() else ""
    return [f"{path}:{target}" for path in files for target in declared(path, whole) if fnmatchcase(target, name)]


def declared(path: Path, prefix: str = "") -> list[str]:
    """The functions of a file that are decorated as targets, and other decorated ones whose names begin with `prefix`.

    Its text is read; nothing in it runs.
    """
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except (OSError, SyntaxError, ValueError) as error:
        raise UsageError(f"targets: cannot read {path}: {' '.join(str(error).split())}") from None
    functions = [node for node in body if isinstance(node, ast.FunctionDef) and node.decorator_list]
    return [
        node.name
        for node in functions
        if any(map(_is_target, node.decorator_list)) or prefix and node.name.startswith(prefix)
    ]


def _is_target(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else None
    return (called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")) == "target"


def next_job(lanes: Sequence[Job], busy: set[int], urgent: Container[int] = ()) -> int | None:
    """The index of the lane whose turn it is among those that are not busy and have not been given up, if any.

    An urgent lane, which has suspects, comes first, then one that has run no case. Of the others the one with the
    highest sum of two numbers: what it discovers for each second, as a share of what the best lane does, and
    curiosity, which grows while others run.
    """
    free = [index for index, lane in enumerate(lanes) if index not in busy and not lane.note]
    best = max((lane.recent for lane in lanes), default=0.0)
    total = sum(lane.slices for lane in lanes)

    def score(index: int) -> tuple[float, tuple[float, ...]]:
        lane = lanes[index]
        if index in urgent or not lane.cases:
            return math.inf, (index in urgent, -lane.slices, -index)
        earned = lane.recent / best if best else 0.0
        return earned + CURIOSITY * math.sqrt(math.log(total + 1) / tried(lane)), (-lane.seconds,)

    return max(free, key=score, default=None)


def tried(lane: Job) -> float:
    """The slices that a lane has had; one that died counts as half a one."""
    return max(lane.slices - lane.deaths / 2, 1.0)


def earned(lane: Job, discoveries: int, seconds: float) -> float:
    """What a lane discovers for each second, after one more slice."""
    now = discoveries / max(seconds, 1.0)
    return now if not lane.slices else MEMORY * lane.recent + (1 - MEMORY) * now
