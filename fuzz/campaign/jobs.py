"""Lists the jobs of a campaign, and picks the one whose slice comes next by discoveries per second (UCB1).

A job is one target on one backend by one engine with one seed. Patterns are matched against the text of target files:
no target is loaded here, so that one that cannot be loaded costs its own jobs only.
"""

from __future__ import annotations

import ast
import fnmatch
import math
from collections.abc import Container, Iterator, Sequence
from glob import glob
from itertools import product
from pathlib import Path

from fuzz.campaign.config import CampaignConfig
from fuzz.campaign.store import Job
from fuzz.errors import UsageError
from fuzz.target.loader import built_in_files, library_files, locate

DECAY = 0.7
"""How much of what a job discovered earlier counts, after each slice."""
EXPLORATION = math.sqrt(2)
"""Weight of the term of UCB1 that grows while other jobs run."""
MAX_JOBS = 1 << 16
FINDING_CELLS = 20
"""A new finding counts as so many newly visited cells."""


def create_jobs(config: CampaignConfig, campaign: int) -> list[Job]:
    """Every job of a configuration, once. UsageError for a pattern that no target fits, and for too many jobs.

    Where no seeds are given there are as many as it takes for every worker to have a job.
    """
    targets = [(target, "") for target in select_targets(config.targets)]
    targets += [_parse_planted(text) for text in dict.fromkeys(config.planted)]
    jobs_of_a_seed = len(targets) * len(config.backends) * len(config.engines)
    seeds = config.seeds or range(-(-config.workers // jobs_of_a_seed))
    if jobs_of_a_seed * len(seeds) > MAX_JOBS:
        raise UsageError(f"the targets, backends, engines and seeds give more than {MAX_JOBS} jobs")
    jobs = (
        Job(campaign, target, planted, backend, engine, seed)
        for (target, planted), backend, engine, seed in product(targets, config.backends, config.engines, seeds)
    )
    return list(dict.fromkeys(jobs))


def _parse_planted(text: str) -> tuple[str, str]:
    target, _, bug = text.rpartition("+")
    if not target or not bug:
        raise UsageError(f"planted: {text!r} should be TARGET+BUG, such as gelu_bw+erf_saturates")
    path, name = locate(target)
    known = planted_bugs(path, name)
    if known is not None and bug not in known:
        listed = ", ".join(known) or "none"
        raise UsageError(f"planted: target {target!r} has no planted bug {bug!r}; known: {listed}")
    return target, bug


def planted_bugs(path: Path, name: str) -> list[str] | None:
    """The bugs that a file plants in a target of it, or in its only one where there is no name; None if it cannot tell.

    Its text is read; nothing in it runs. So a bug whose name is computed, and one of a target that the file imports, is
    not known.
    """
    declared = declared_targets(path)
    name = name or (declared[0] if len(declared) == 1 else "")
    if name not in declared:
        return None
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    plants = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr == "planted"]
    calls = [node for node in nodes if isinstance(node, ast.Call) and node.func in plants]
    known = []
    for call in calls:
        first = call.args[0] if call.args else None
        if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
            return None
        if ast.unparse(call.func) == f"{name}.planted":
            known.append(first.value)
    # What is called by another name, or passed on, may plant anything.
    receivers = {ast.unparse(plant.value) for plant in plants}
    return known if len(calls) == len(plants) and receivers <= {*declared} else None


def select_targets(patterns: Sequence[str]) -> list[str]:
    """The targets that patterns name, each as `fuzz run` takes it; a pattern with ! takes targets out again."""
    shipped = list(_shipped_targets())
    selected: dict[str, None] = {}
    for pattern in patterns:
        wildcard = pattern.removeprefix("!")
        is_path = wildcard.endswith(".py") or ".py:" in wildcard
        fitting = [name for name in shipped if fnmatch.filter((name, name.replace("/", "_")), wildcard)]
        names = _targets_in_files(wildcard) if is_path else fitting
        if not names:
            raise UsageError(f"targets: no target fits {wildcard!r}; fuzz list tells all")
        kept = selected | dict.fromkeys(names)
        selected = {name: None for name in selected if name not in names} if pattern.startswith("!") else kept
    if not selected:
        raise UsageError("targets: the patterns leave no target")
    return list(selected)


def _shipped_targets() -> Iterator[str]:
    """The targets that come with the project: built-in ones by name, those of libraries as ``liger/softmax``."""
    for path in built_in_files():
        yield path.stem
    for path in library_files():
        prefix = f"{path.parent.name}_"
        yield from (f"{path.parent.name}/{name.removeprefix(prefix)}" for name in declared_targets(path, prefix))


def _targets_in_files(pattern: str) -> list[str]:
    """Every target of every file that a pattern fits, as ``path.py:name``."""
    file, _, name = pattern.rpartition(":") if ".py:" in pattern else (pattern, "", "*")
    files = sorted(Path(path) for path in glob(file, recursive=True))
    # A name that is given in full may be a target by a decorator of the file's own.
    whole = name if name.isidentifier() else ""
    return [f"{path}:{target}" for path in files for target in fnmatch.filter(declared_targets(path, whole), name)]


def declared_targets(path: Path, prefix: str = "") -> list[str]:
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
    return isinstance(decorator, ast.Call) and ast.unparse(decorator.func).rpartition(".")[2] == "target"


def next_job(jobs: Sequence[Job], busy: Container[int], urgent: Container[int] = ()) -> int | None:
    """The index of the job that gets the next slice, among those that are not busy and have not been given up, if any.

    An urgent job, which has suspects, comes first, then one that has run no case. Of the others the one with the
    highest sum of two numbers, as by UCB1 (Auer et al., 2002): what it discovers for each second, as a share of what
    the best job does, and a number that grows while others run.
    """
    free = [index for index, job in enumerate(jobs) if index not in busy and not job.note]
    best = max((job.recent for job in jobs), default=0.0)
    slices = sum(job.slices for job in jobs)

    def score(index: int) -> tuple[float, tuple[float, ...]]:
        job = jobs[index]
        if index in urgent or not job.cases:
            return math.inf, (index in urgent, -job.slices, -index)
        share = job.recent / best if best else 0.0
        # A slice that died counts as half a one.
        tries = max(job.slices - job.deaths / 2, 1.0)
        return share + EXPLORATION * math.sqrt(math.log(slices + 1) / tries), (-job.seconds,)

    return max(free, key=score, default=None)


def average_discoveries(job: Job, discoveries: int, seconds: float) -> float:
    """What a job discovers for each second, after one more slice: an exponential moving average."""
    now = discoveries / max(seconds, 1.0)
    return now if not job.slices else DECAY * job.recent + (1 - DECAY) * now
