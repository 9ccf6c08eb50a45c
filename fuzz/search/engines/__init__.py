"""Lists the engines, which propose the next case, and makes the scheduler of a run."""

from collections.abc import Iterable

from fuzz.backends import BACKENDS
from fuzz.errors import UsageError
from fuzz.search.engines.atheris.engine import AtherisEngine, StartProcess, missing
from fuzz.search.engines.base import Engine, Proposal
from fuzz.search.engines.dictionary import Dictionary
from fuzz.search.engines.evolve import EvolveEngine
from fuzz.search.engines.launch_options import NO_LAUNCH_OPTIONS, LaunchSpace
from fuzz.search.engines.other_values import OtherValues
from fuzz.search.engines.random import RandomEngine
from fuzz.search.engines.runnable_sizes import RunnableSizes
from fuzz.search.engines.scheduler import FIRST_COST, LAG, LONG_LAG, EngineScheduler
from fuzz.target.spec import Target

ENGINES = ("auto", "random", "evolve", "atheris")
"""Names that ``--engine`` takes; ``auto`` is all that can run, each with the share that it earns."""

__all__ = ["ENGINES", "EngineScheduler", "Engine", "Proposal", "RandomEngine", "check_engine", "make_scheduler"]


def check_engine(name: str) -> None:
    """UsageError, in one line, for an engine that there is not or that cannot run here."""
    if name not in ENGINES:
        raise UsageError(f"unknown engine {name!r}; known: {', '.join(ENGINES)}")
    if name == "atheris" and (reason := missing()):
        raise UsageError(reason)


def make_scheduler(
    name: str,
    target: Target,
    backend: str,
    seed: int,
    numbers: Iterable[float],
    start_process: StartProcess,
    first: int = 0,
    launches: LaunchSpace = NO_LAUNCH_OPTIONS,
    first_replicas: int | None = None,
    is_timed: bool = False,
) -> EngineScheduler:
    """The scheduler of a run with the engine of that name. `numbers` are those of the launcher's code.

    The plans of random that were drawn before `first` are not drawn again, nor the cases with which evolve began then.
    The first plans of random have at most `first_replicas` replicas; None is what the backend says. Of a run that time
    ends, `is_timed`, which no other one repeats anyway, plans of sizes that fail to run are left out where compiling
    takes long, and plans that ran come again with other values.
    """
    check_engine(name)
    dictionary = Dictionary()
    dictionary.add(numbers)
    random_limits, guided_limits = (BACKENDS[backend].replica_limits(guided=guided) for guided in (False, True))
    if first_replicas is not None:
        random_limits = random_limits._replace(first=first_replicas)
    learns = is_timed and BACKENDS[backend].is_accelerator
    sizes, other_values = (RunnableSizes(), OtherValues()) if learns else (None, None)
    random = RandomEngine(
        target, seed, dictionary=dictionary, first=first, limits=random_limits, launches=launches, sizes=sizes,
        other_values=other_values,
    )  # fmt: skip
    engines: dict[str, Engine] = {
        "random": random,
        "evolve": EvolveEngine(target, seed, dictionary, limits=guided_limits, launches=launches, first=first),
    }  # fmt: skip
    if name in ("auto", "atheris") and not missing():
        engines["atheris"] = AtherisEngine(target, seed, start_process, first=first, limits=guided_limits)
    chosen = list(engines.values()) if name == "auto" else [engines[name]]
    lag = LONG_LAG if name == "random" else LAG
    scheduler = EngineScheduler(chosen, dictionary, lag, FIRST_COST + first, sizes=sizes, other_values=other_values)
    if chosen[0] is random:
        scheduler.propose_again = random.propose_again
    return scheduler
