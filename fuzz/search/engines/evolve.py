"""The engine `evolve`: a genetic search that maximises error over bound and keeps what did something new.

The search runs in epochs. An epoch begins with cases drawn as `random` draws them; then parents are chosen and mutated,
and the children that come nearer to the bound, or that made the kernel do something new, become parents. An epoch
without progress ends early. The best case of each cell (dtypes x layouts x classes of dims x exponent region) is kept
across epochs as an elite, as in MAP-Elites (Mouret, Clune, 2015), and elites are some of the parents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from fuzz.backends.base import Backend, ReplicaLimits
from fuzz.model.case import Case
from fuzz.search.engines.base import Proposal
from fuzz.search.engines.dictionary import Dictionary
from fuzz.search.engines.launch_options import NO_LAUNCH_OPTIONS, LaunchSpace
from fuzz.search.engines.mutations import MUTATIONS, WITH_DICTIONARY, MutationContext, mutate
from fuzz.search.engines.novelty import EliteCell, Novelty, elite_cell, error
from fuzz.search.engines.random import RandomEngine
from fuzz.search.engines.replica_count import OutputSizes, count_guided_replicas
from fuzz.target.spec import Target
from fuzz.worker.protocol import Report

JOINS = 128
"""Plans of `random` before its first where both run: random cases show what is easy to find."""
INITIAL = 32
"""Drawn cases with which an epoch begins."""
EPOCH = 1000
"""Most plans of an epoch."""
STALLED_PLANS = 192
"""Plans without anything new after which an epoch ends."""
POPULATION = 12
"""Cases that may be parents at a time."""
MAX_ELITES = 1 << 10
"""Elites kept."""
MAX_NOVEL = 1 << 8
"""Cases kept that did something new, the latest."""


@dataclass
class Individual:
    """A case that may be a parent: replica `number` of a plan, its error over bound, its discoveries, its children."""

    plan: Case
    number: int
    error: float
    discoveries: int
    children: int = 0

    @property
    def case(self) -> Case:
        return self.plan.replica(self.number)


@dataclass
class EvolveEngine:
    """Proposes children of the cases that did best.

    A search that begins after `first` plans of this seed draws other cases, and chooses otherwise, than one before it.
    """

    target: Target
    seed: int
    dictionary: Dictionary
    name: str = "evolve"
    joins: int = JOINS
    limits: ReplicaLimits = Backend.replica_limits(guided=True)
    population: list[Individual] = field(default_factory=list)
    elites: dict[EliteCell, Individual] = field(default_factory=dict)
    novel: list[Individual] = field(default_factory=list)
    novelty: Novelty = field(default_factory=Novelty)
    launches: LaunchSpace = NO_LAUNCH_OPTIONS
    output_sizes: OutputSizes = field(default_factory=OutputSizes)
    first: int = 0
    _plans: int = 0
    _initial: int = 0
    _epoch_start: int = 0
    _last_progress: int = 0

    def __post_init__(self) -> None:
        self.random = Random(f"evolve {self.seed}/{self.first}" if self.first else f"evolve {self.seed}")
        self._plans = self._epoch_start = self._initial = self.first
        self.context = MutationContext(self.target, self.dictionary, self.random)
        self.drawn = RandomEngine(self.target, self.seed, "evolve")

    def propose(self) -> Proposal:
        age = self._plans - self._epoch_start
        if age >= EPOCH or age - self._last_progress >= STALLED_PLANS + INITIAL:
            self._epoch_start, self._last_progress, self.population, age = self._plans, 0, [], 0
        plan = self._initial_case() if age < INITIAL else self._child()
        plan = self.launches.draw(plan, f"{self.name} {self.seed}/{self._plans}")
        self._plans += 1
        return Proposal(plan, count_guided_replicas(plan, self.limits, self.output_sizes, self._plans))

    def learn(self, proposal: Proposal, reports: Sequence[Report]) -> None:
        """Keeps the replicas that did something new or came nearer to their bound than others of their cell.

        A case that disagrees is no parent: its bug is found already.
        """
        self.output_sizes.learn(proposal.plan, reports)
        cell = elite_cell(proposal.plan)
        for number, report in enumerate(reports):
            discoveries = self.novelty.discoveries_in(cell, report)
            if not report.accepted or report.findings or report.outcome != "returned":
                continue
            individual = Individual(proposal.plan, number, error(report), discoveries)
            elite = self.elites.get(cell)
            if elite is None or individual.error > elite.error:
                self._keep_elite(cell, individual)
            if discoveries:
                self._last_progress = self._plans - self._epoch_start
                self.novel = [*self.novel, individual][-MAX_NOVEL:]
            if individual.error or discoveries:
                self._add_to_population(individual)

    def close(self) -> None:
        """This engine has started nothing."""

    def _initial_case(self) -> Case:
        """A case as `random` draws it, or an elite."""
        self._initial += 1
        if self.elites and self._initial % 4 == 0:
            return self.random.choice(list(self.elites.values())).case
        return self.drawn.case(self._initial)

    def _child(self) -> Case:
        parent = self._choose_parent()
        if parent is None:
            return self._initial_case()
        parent.children += 1
        mutations = WITH_DICTIONARY if self.random.random() < 0.2 else MUTATIONS
        return mutate(parent.case, self.context, mutations, self.random.choice((1, 1, 1, 2, 2, 3)))

    def _choose_parent(self) -> Individual | None:
        """By error from the population, by discoveries from the novel cases, or any elite."""
        kind = self.random.random()
        if kind < 0.5 and self.population:
            return max(self._sample(self.population), key=lambda individual: individual.error)
        if kind < 0.85 and self.novel:
            return min(self._sample(self.novel), key=lambda individual: individual.children - individual.discoveries)
        return self.random.choice(list(self.elites.values())) if self.elites else None

    def _sample(self, individuals: list[Individual]) -> list[Individual]:
        return self.random.sample(individuals, min(4, len(individuals)))

    def _keep_elite(self, cell: EliteCell, individual: Individual) -> None:
        self.elites.pop(cell, None)
        self.elites[cell] = individual
        if len(self.elites) > MAX_ELITES:
            self.elites.pop(next(iter(self.elites)))

    def _add_to_population(self, individual: Individual) -> None:
        self.population.append(individual)
        if len(self.population) > 2 * POPULATION:
            self.population.sort(key=lambda member: (member.error, member.discoveries), reverse=True)
            del self.population[POPULATION:]
