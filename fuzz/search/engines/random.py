"""The engine `random`: Hypothesis draws every plan, from bytes that depend on the seed and the plan's number alone.

Some plans are then mutated so that sizes and values are numbers of the kernel's code, which are the same in each run.
So plan i of a seed is the same however many workers run and whatever happened before it. The first plans have one
replica each, because what breaks a kernel soon is a size, a layout or a dtype; later ones have several, because then
the reference, the dearest part of a case, is evaluated once for all of them. On a GPU a plan costs its compilation
whatever its replicas are, so that the first ones have some there too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from hypothesis import HealthCheck, given, settings

from fuzz.backends.base import FIRST_PLANS, Backend, ReplicaLimits
from fuzz.model.case import Case
from fuzz.search.engines.base import Proposal
from fuzz.search.engines.dictionary import Dictionary
from fuzz.search.engines.launch_options import NO_LAUNCH_OPTIONS, LaunchSpace
from fuzz.search.engines.mutations import WITH_DICTIONARY, MutationContext, mutate, with_dims
from fuzz.search.engines.other_values import OtherValues
from fuzz.search.engines.replica_count import count_replicas
from fuzz.search.engines.runnable_sizes import RunnableSizes, sizes_of
from fuzz.search.strategies import BUDGETS, LONG, Budgets, cases
from fuzz.target.legal import make_legal
from fuzz.target.spec import Target
from fuzz.worker.protocol import Report

BYTES = 768
"""Bytes of choices that one plan may use; a plan that would need more is drawn again."""
ATTEMPTS = 100
"""Draws, at most, for one plan."""
MUTATED = 8
"""One plan in so many is mutated to hold numbers of the kernel's code."""

GROUP_BUDGETS: Budgets = ((26, 1 << 8), (4, LONG), (23, 1 << 11), (10, 1 << 14), (37, 1 << 16))
"""Small plans have more replicas: large ones must be drawn more often to stay the same share of the cases."""


@dataclass
class RandomEngine:
    """Proposes plan `first`, first + 1, first + 2, .. of a target and a seed; with `sizes` those that may run, and with
    `other_values` some that ran, with other values."""

    target: Target
    seed: int
    name: str = "random"
    joins: int = 0
    dictionary: Dictionary = field(default_factory=Dictionary)
    first: int = 0
    limits: ReplicaLimits = Backend.replica_limits(guided=False)
    launches: LaunchSpace = NO_LAUNCH_OPTIONS
    sizes: RunnableSizes | None = None
    other_values: OtherValues | None = None

    def __post_init__(self) -> None:
        self._draw_first, self._draw_later = (make_drawer(self.target, each) for each in (BUDGETS, GROUP_BUDGETS))

    def case(self, number: int) -> Case:
        """Plan `number` of this seed: its first replica."""
        drawn = self._plans(number)
        plan = self._runnable(drawn, number) if self.sizes else next(drawn, None)
        if plan is None:
            raise RuntimeError(f"no case {number} for target {self.target.name!r} within {ATTEMPTS} attempts")
        return plan

    def _runnable(self, drawn: Iterator[Case], number: int) -> Case | None:
        """One of the plans that are drawn, at sizes at which the kernel may run."""
        assert self.sizes is not None
        plan, calls = self.sizes.choose(drawn) or (None, ())
        if plan is None or calls == sizes_of(plan):
            return plan
        context = MutationContext(self.target, self.dictionary, Random(f"{self.seed}/{number}"))
        resized: Case | None = plan
        for index, sizes in enumerate(calls):
            resized = resized and with_dims(resized, context, index, sizes)
        return make_legal(resized, self.target) if resized else plan

    def _plans(self, number: int) -> Iterator[Case]:
        """Plan `number` of this seed, and those that may take its place."""
        draw = self._draw_first if number < FIRST_PLANS else self._draw_later
        for attempt in range(ATTEMPTS):
            if plan := draw(choices(f"{self.seed}/{number}/{attempt}")):
                yield plan

    def propose(self) -> Proposal:
        """The next plan; one in MUTATED is mutated to hold numbers of the dictionary."""
        if again := self.propose_again():
            return again
        number, context = self._begin()
        random = context.random
        plan = self.case(number)
        if number % MUTATED == MUTATED - 1 and self.dictionary.numbers:
            plan = mutate(plan, context, WITH_DICTIONARY, random.choice((1, 2, 3)))
        plan = self.launches.draw(plan, f"{self.name} {self.seed}/{number}")
        return Proposal(plan, self.count_replicas(number, plan))

    def propose_again(self) -> Proposal | None:
        """A plan that ran, with other values; None where none is due."""
        if self.other_values is None or not self.other_values.is_due:
            return None
        number, context = self._begin()
        plan = self.other_values.choose(context)
        return Proposal(plan, self.count_replicas(number, plan)) if plan else None

    def _begin(self) -> tuple[int, MutationContext]:
        """The number of the next plan, and what depends on it alone."""
        number, self.first = self.first, self.first + 1
        return number, MutationContext(self.target, self.dictionary, Random(f"{self.seed}/{number}"))

    def learn(self, proposal: Proposal, reports: Sequence[Report]) -> None:
        """A plan depends on the seed, its number and the dictionary alone."""

    def close(self) -> None:
        """This engine has started nothing."""

    def count_replicas(self, number: int, plan: Case) -> int:
        """How many replicas plan `number` has."""
        is_first = number < FIRST_PLANS
        limits = self.limits._replace(replicas=self.limits.first) if is_first else self.limits.at(number)
        return count_replicas(plan, limits)


def make_drawer(target: Target, budgets: Budgets) -> Callable[[bytes], Case | None]:
    """The function that draws a plan by Hypothesis from bytes of choices; None where it would need more of them."""
    plans: list[Case] = []

    @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(cases(target, budgets))
    def collect(plan: Case) -> None:
        plans.append(plan)

    def draw(data: bytes) -> Case | None:
        plans.clear()
        collect.hypothesis.fuzz_one_input(data)  # type: ignore[attr-defined]
        return plans[-1] if plans else None

    return draw


def choices(key: str) -> bytes:
    """Bytes that depend on the key alone (SHAKE-128)."""
    return hashlib.shake_128(key.encode()).digest(BYTES)
