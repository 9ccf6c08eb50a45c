"""Learns the sizes at which a kernel runs, so that a GPU does not compile one plan after the other that fails.

A kernel that multiplies matrices may refuse every size below 16, and a declaration allow 1: nineteen plans of twenty
then end in the compiler, seconds each, and by one bug that is known. What is found out is a few bounds on dims that
every plan that ran keeps and nearly every plan that failed breaks; plans within them are drawn, or brought within
them, and one of eight is taken as it is drawn. Of a plan of several calls that failed it is not known which one did:
a bound explains it that one of them breaks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product

from fuzz.model.case import Case
from fuzz.worker.protocol import Report

FREE = 8
"""One plan of so many is taken as it is drawn."""
TRIED = 8
"""Plans that are drawn, at most, for one within the bounds, and while none has run."""
KEPT = 64
"""Sizes of the latest plans that failed."""
EXPLAINED = 0.9
"""The share of the failures that bounds are to explain."""
Sizes = Mapping[str, int]
Calls = tuple[Sizes, ...]
"""The sizes of each call of a plan."""


@dataclass(frozen=True)
class Bound:
    """A dim of at least `size`, or with sign -1 of at most that."""

    dim: str
    sign: int
    size: int

    def breaks(self, calls: Calls) -> bool:
        """Whether sizes of a call lie beyond the bound."""
        return any(self.sign * sizes[self.dim] < self.sign * self.size for sizes in calls)


@dataclass
class RunnableSizes:
    """What plans that ran, and those that failed, say about sizes."""

    ran: dict[tuple[str, int], int] = field(default_factory=dict)
    failed: deque[Calls] = field(default_factory=lambda: deque(maxlen=KEPT))
    bounds: tuple[Bound, ...] = ()
    _chosen: int = 0

    def learn(self, plan: Case, reports: Sequence[Report]) -> None:
        """Takes in the first report on a plan; what could not run for lack of memory or time says nothing."""
        if reports[0].not_run:
            return
        if reports[0].failure:
            self.learn_failure(plan)
            return
        for sign, sizes in product((1, -1), sizes_of(plan)):
            for dim, size in sizes.items():
                extreme = self.ran.get((dim, sign), size)
                self.ran[dim, sign] = sign * min(sign * extreme, sign * size)
        self.bounds = tuple(self._explain())

    def learn_failure(self, plan: Case) -> None:
        """Takes in that a plan failed, or would."""
        self.failed.append(sizes_of(plan))
        self.bounds = tuple(self._explain())

    def forget_failures(self) -> None:
        """Takes back that plans failed, as they may not have."""
        self.failed.clear()
        self.bounds = ()

    def choose(self, drawn: Iterator[Case]) -> tuple[Case, Calls] | None:
        """One of the plans that are drawn and sizes at which its calls may run; None where none is drawn.

        While none has run these are the largest sizes of several plans, and the smallest, in turn.
        """
        self._chosen += 1
        first = next(drawn, None)
        if first is None:
            return None
        if not self.failed or self._chosen % FREE == 0:
            return first, sizes_of(first)
        several = [first, *islice(drawn, TRIED - 1)]
        if self.ran:
            plan = next(filter(self._may_run, several), first)
            return plan, tuple(map(self._within, sizes_of(plan)))
        extreme = max if self._chosen % 2 else min
        sizes = {dim: extreme(plan.last.dims[dim] for plan in several) for dim in first.last.dims}
        return first, (sizes,) * len(first.calls)

    def _may_run(self, plan: Case) -> bool:
        return not any(bound.breaks(sizes_of(plan)) for bound in self.bounds)

    def _within(self, sizes: Sizes) -> Sizes:
        """Sizes within the bounds."""
        return {**sizes, **{bound.dim: bound.size for bound in self.bounds if bound.breaks((sizes,))}}

    def _explain(self) -> list[Bound]:
        """Few bounds that explain the failures, chosen greedily among the least and largest sizes that ran."""
        found, left = [], list(self.failed)
        possible = [Bound(dim, sign, size) for (dim, sign), size in self.ran.items()]
        while possible and len(left) > (1 - EXPLAINED) * len(self.failed):
            best = max(possible, key=lambda bound: sum(map(bound.breaks, left)))
            others = [calls for calls in left if not best.breaks(calls)]
            if len(others) == len(left):
                break
            found.append(best)
            left = others
        return found


def sizes_of(plan: Case) -> Calls:
    """The sizes of each of its calls."""
    return tuple(call.dims for call in plan.calls)
