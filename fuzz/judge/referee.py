"""Judges one solution of one problem: draws inputs from ordinary to odd, and ends where the solution is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count

from fuzz.backends import backend as named_backend
from fuzz.judge.checks.configurations import configuration_cases, examine_benchmarks
from fuzz.judge.checks.history import examine_history
from fuzz.judge.checks.launches import examine_constants, examine_copies, examine_launches, find_lost_updates
from fuzz.judge.checks.many_calls import examine_many_calls
from fuzz.judge.findings import Findings, leave_open
from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.problem.description import NotComparable, ProblemDescription, Unsupported, UnsupportedHere
from fuzz.judge.problem.input_domain import (
    ORDINARY_RECIPES,
    accepts,
    backward_cases,
    declared_case,
    ordinary_case,
    variant_cases,
    with_one_dtype,
    with_possible_layouts,
)
from fuzz.judge.problem.target import make_target
from fuzz.judge.processes import first_dims
from fuzz.judge.processes.first_dims import FIRST_SECONDS, halved, name_changed
from fuzz.judge.processes.isolated_worker import IsolatedWorker, as_values
from fuzz.judge.processes.requests import Describe, MakeValues, Refusal, TensorWords
from fuzz.judge.result.judgement import (
    CONDUCT,
    LAUNCHES,
    MACHINE,
    NOT_COMPARABLE,
    ODD_VALUES,
    RIGHT,
    UNSUPPORTED,
    Evidence,
    Judgement,
)
from fuzz.judge.stage_limits import StageLimits
from fuzz.judge.start_processes import start_processes
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.oracle_specs import FAULT
from fuzz.model.recipes import Values, recipe
from fuzz.search.engines.random import RandomEngine
from fuzz.target.spec import FLOATS, Target
from fuzz.triage.triage import Triage
from fuzz.worker.deadline import Deadline, OutOfTime
from fuzz.worker.protocol import Report

OWN_TRIALS, TRIALS_SECONDS = 5, 20.0
"""Cases that the rule of KernelBench looks at, and the seconds after which there are no more of them."""
SHAPES, ORDINARY_CASES = 12, 2 * len(ORDINARY_RECIPES)
OTHER_DIMS, OTHER_VALUES, GRADIENTS = "other dims", "other values", "gradients"
CONFIGURATIONS, CALLS, RACES = "autotuners' configurations", "calls one after the other", "races"
ORDINARY_STAGES, CALL_STAGES = (OTHER_VALUES, GRADIENTS), (CONFIGURATIONS, CALLS, LAUNCHES, RACES)


class Stop(Exception):
    """Enough is known: something counts against the solution."""


def judge(options: JudgeOptions) -> Judgement:
    """Judges a solution. Raises UsageError where its files cannot be read or the backend does not run here."""
    backend = named_backend(options.backend)
    start = time.monotonic()
    judgement = Judgement(RIGHT, "", str(options.problem), str(options.solution), backend.name)
    deadline = Deadline()
    try:
        with start_processes(options, backend, deadline) as (problem, solution):
            description = problem.call(Describe())
            if isinstance(description, Refusal):
                raise Unsupported(f"the problem cannot be run: {description.text}")
            Referee(options, IsolatedWorker(problem, solution, description), judgement, deadline).run()
    except NotComparable as error:
        judgement.verdict, judgement.reason, judgement.cause = NOT_COMPARABLE, str(error), error.cause
    except Unsupported as error:
        judgement.verdict, judgement.reason, judgement.cause = UNSUPPORTED, str(error), error.cause
    judgement.seconds = time.monotonic() - start
    return judgement


@dataclass
class Referee:
    """Examines a solution stage by stage, and writes what it finds into a judgement."""

    options: JudgeOptions
    worker: IsolatedWorker
    judgement: Judgement
    deadline: Deadline
    targets: dict[tuple[tuple[str, ...], bool], Target] = field(default_factory=dict)
    dtypes: list[str] = field(default_factory=lambda: [FLOATS[0]])

    def run(self) -> None:
        """All stages in turn, as long as nothing counts against the solution."""
        self.worker.load()
        with Triage(self.target(), self.worker, (), together=False) as triage:  # type: ignore[arg-type]
            self.triage, self.findings = triage, Findings(self.worker, triage)
            with suppress(Stop):
                with self.limits.first_cases():
                    self.examine_first_cases()
                stages = self.stages()
                for number, (name, stage) in enumerate(stages.items()):
                    with self.limits.stage(name, len(stages) - number):
                        stage()
                    self.check_conduct()
                self.examine_random()
        self.conclude()

    def stages(self) -> Mapping[str, Callable[[], None]]:
        """What is tried between the first cases and odd values."""
        return {
            "stated dims": self.examine_variants,
            OTHER_DIMS: self.examine_shapes,
            OTHER_VALUES: self.examine_ordinary,
            GRADIENTS: self.examine_gradients,
            CONFIGURATIONS: self.examine_configurations,
            CALLS: self.examine_history,
            LAUNCHES: self.examine_launches,
            RACES: self.examine_races,
            "other dtypes": self.find_dtypes,
        }

    @cached_property
    def limits(self) -> StageLimits:
        """The limits of the stages' time."""
        return StageLimits(self.deadline, self.renew)

    def renew(self) -> None:
        """Drops the processes, which a deadline may have ended; whoever asks them starts new ones."""
        self.triage.__exit__()
        for worker in (self.worker, self.triage.worker):
            worker.stop()
            worker.timeout = FIRST_SECONDS
        self.triage.spare = None
        self.worker.problem.stop()

    @property
    def description(self) -> ProblemDescription:
        return self.worker.description

    def target(self, *dtypes: str, backward: bool = False) -> Target:
        """The target whose floating arguments have these dtypes, float32 unless others are given."""
        key = dtypes or FLOATS[:1], backward
        if key not in self.targets:
            self.targets[key] = make_target(self.description, make=self.make_own, dtypes=key[0], backward=backward)
        return self.targets[key]

    def make_own(self, name: str, dims: Mapping[str, int], seed: int) -> Values:
        """The values that the problem makes of an argument."""
        answer = self.worker.problem.call(MakeValues(dims, seed))
        if isinstance(answer, Refusal):
            return recipe("zeros", seed)
        words: TensorWords = answer[name]
        return as_values(words.words, words.dtype)

    def examine_first_cases(self) -> None:
        """The problem's own dims, or smaller ones, with its own values: as the format's rule does it."""
        dims = dict(self.description.dims)
        for _ in range(4):
            self.note_scaling(dims)
            case = declared_case(self.target(), self.description, dims, self.seed())
            if self.examine(case, own_rule=True) is not None:
                break
            self.judgement.is_slow = True
            dims = halved(self.description, dims)
        start = time.monotonic()
        for trial in range(1, OWN_TRIALS):
            if time.monotonic() - start > TRIALS_SECONDS:
                self.judgement.notes.append(f"the first dims take long: {trial} cases of them instead of {OWN_TRIALS}")
                break
            self.examine(declared_case(self.target(), self.description, dims, self.seed(trial)), own_rule=True)
        self.check_refusals()
        self.lower_dims(dims)

    def lower_dims(self, dims: dict[str, int]) -> None:
        """Takes smaller dims for what follows, where a comparison takes long at those of the first cases."""
        lower = dims
        for number in range(4):
            if self.worker.last.seconds <= first_dims.COMPARING_SECONDS or halved(self.description, lower) == lower:
                break
            lower = halved(self.description, lower)
            self.examine(declared_case(self.target(), self.description, lower, self.seed(60 + number)))
        if lower != dims:
            self.worker.take_dims(lower)
            self.targets.clear()
            self.judgement.notes.append(f"comparing takes long, further cases have {name_changed(lower, dims)}")

    def check_refusals(self) -> None:
        """A solution has to take what the problem itself makes; at smaller dims it need not."""
        log = self.worker.log
        if log.returned or not log.rejected:
            return
        if self.judgement.notes:
            raise UnsupportedHere(f"it refuses other dims, and {self.judgement.notes[0]}: {log.rejection}")
        if self.worker.asks_for_gpu:
            raise UnsupportedHere(f"it looks for a GPU by the name of a device, and refuses others: {log.rejection}")
        self.accuse(FAULT.name, "raised", f"it refuses the inputs that the problem itself makes: {log.rejection}")

    def note_scaling(self, dims: Mapping[str, int]) -> None:
        smaller = name_changed(dims, self.description.own_dims)
        self.judgement.notes[:] = [f"the problem's own dims are too large here: {smaller} instead"] if smaller else []

    def examine_variants(self) -> None:
        """Other dims and dtypes that the problem states, with its own values."""
        found = list(variant_cases(self.worker, self.target, self.seed(90)))
        for _, case in found:
            if case is not None:
                self.examine(case)
        if tried := sum(case is not None for _, case in found):
            self.judgement.kinds.append("variants that the problem states")
        if tried < len(found):
            left_out = [one.text for one, case in found if case is None]
            self.judgement.notes.append(f"variants too large here, or not drawn: {', '.join(left_out)}")

    def examine_shapes(self) -> None:
        """Other dims, with the problem's own values: drawn ones, and about twice as large, each alone and all."""
        if not self.target().sizes:
            return
        engine = RandomEngine(self.target(), self.options.seed)
        for number in range(SHAPES):
            dims = {**self.description.dims, **engine.case(number).last.dims}
            self.examine(declared_case(self.target(), self.description, dims, self.seed(100 + number)))
        larger = {one.name: one.clamp(2 * self.description.dims[one.name] + 1) for one in self.target().sizes}
        for number, names in enumerate(dict.fromkeys([*((name,) for name in larger), tuple(larger)])):
            changed = {name: larger[name] for name in names}
            for dims in (dict(self.description.dims), self.small_dims(16)):
                case = declared_case(self.target(), self.description, dims | changed, self.seed(150 + number))
                report = self.examine(case)
                if report is None or not report.rejected:
                    break
        self.judgement.kinds.append(OTHER_DIMS)

    def examine_ordinary(self) -> None:
        """Ordinary values, weights among them, beyond what the problem makes; and other dtypes that are accepted."""
        engine = RandomEngine(self.target(), self.options.seed)
        for number in range(ORDINARY_CASES):
            call = engine.case(number).last
            if number % 2 == 0:
                call = declared_case(self.target(), self.description, self.small_dims(), 0).last
            values = ORDINARY_RECIPES[number % len(ORDINARY_RECIPES)]
            self.examine(ordinary_case(self.target(), self.description, call, self.seed(200 + number), values))
        self.judgement.kinds.append(OTHER_VALUES)

    def examine_gradients(self) -> None:
        """Gradients of arguments and parameters, where the problem has such and the solution is differentiable."""
        if not self.wants_gradients:
            return
        target = self.target(backward=True)
        for case in backward_cases(self.worker, target, self.description, self.small_dims(), self.seed(250)):
            if GRADIENTS not in self.judgement.kinds:
                self.judgement.kinds.append(GRADIENTS)
            self.examine(case)

    def examine_configurations(self) -> None:
        """Each configuration of autotuners, at two choices of dims; and a call in which they benchmark them."""
        if not self.worker.log.configs:
            return
        drawn = {**self.description.dims, **RandomEngine(self.target(), self.options.seed).case(0).last.dims}
        chosen = self.small_dims() if self.judgement.is_slow else dict(self.description.dims)
        cases = [declared_case(self.target(), self.description, dims, self.seed(280)) for dims in (chosen, drawn)]
        self.judgement.kinds.append(CONFIGURATIONS)
        for case in configuration_cases(cases, self.worker.log.configs):
            self.examine(case)
        self.file_evidence(examine_benchmarks(self.worker, cases[0], self.worker.log.configs))

    @property
    def wants_gradients(self) -> bool:
        """Whether gradients are compared: kernels for problems without parameters need have none."""
        return any(one.is_state for one in self.description.arguments.values())

    def small_dims(self, most: int = 64) -> dict[str, int]:
        """The dims of the first cases, none above `most` where the problem takes that."""
        first = dict(self.description.dims)
        return first | {one.name: one.clamp(min(first[one.name], most)) for one in self.description.sizes}

    def examine_launches(self) -> None:
        """Leaves the launches out: the result has to change."""
        case = declared_case(self.target(), self.description, self.small_dims(), self.seed(300))
        case = ordinary_case(self.target(), self.description, case.last, self.seed(300), recipe("normal"))
        made = (self.target(), self.description, case.last, self.seed(302))
        others = [ordinary_case(*made, values) for values in ORDINARY_RECIPES]
        self.file_evidence(examine_launches(self.worker, case, others))
        if self.worker.log.launches and not self.judgement.is_slow:
            own = declared_case(self.target(), self.description, dict(self.description.dims), self.seed(301))
            self.file_evidence(examine_copies(self.worker, [case, own]))
            self.file_evidence(examine_constants(self.worker, [case, *others[:2]]))

    def examine_races(self) -> None:
        """Programs of a launch that update one element without atomics lose what another one has added."""
        if not self.worker.log.launches or self.judgement.is_slow:
            return
        case = declared_case(self.target(), self.description, dict(self.description.dims), self.seed(350))
        self.file_evidence(next(find_lost_updates(self.worker, case, self.options.solution), None))

    def examine_history(self) -> None:
        """Calls one after the other: each gives what a first call gives. It is done once."""
        if CALLS in self.judgement.kinds:
            return
        self.judgement.kinds.append(CALLS)
        examined = self.worker, self.target(), self.description
        self.file_evidence(examine_history(*examined, self.small_dims(), self.seed(400)))
        for own_dims in (False,) if self.judgement.is_slow else (False, True):
            kind, found = examine_many_calls(*examined, own_dims, self.seed(400))
            self.judgement.kinds.append(kind)
            self.file_evidence(found)

    def check_conduct(self) -> None:
        for reason in self.worker.log.conduct:
            self.accuse(CONDUCT, "conduct", f"it {reason}" if not reason.startswith("out") else reason)

    def accuse(self, oracle: str, symptom: str, message: str) -> None:
        self.file_evidence(Evidence(oracle, ("launcher",), symptom, message, "high"))

    def file_evidence(self, evidence: Evidence | None) -> None:
        """Files what counts. Raises Stop where there is any."""
        if evidence is not None:
            self.judgement.evidence.append(evidence)
            raise Stop

    def find_dtypes(self) -> None:
        """Which dtypes that the problem does not state the solution computes in."""
        dims, seed = self.small_dims(), self.seed(500)
        self.dtypes += [name for name in FLOATS[1:] if accepts(self.worker, self.target(name), dims, name, seed)]

    def examine_random(self) -> None:
        """Any values, layouts and accepted dtypes, until the time ends."""
        if len(self.dtypes) > 1:
            self.judgement.kinds.append(f"dtypes {', '.join(self.dtypes)}")
        if not self.options.seconds:
            return
        self.judgement.kinds.append(ODD_VALUES)
        engine = RandomEngine(self.target(*self.dtypes), self.options.seed)
        with self.limits.last_stage(self.options.seconds):
            for number in count():
                call = engine.case(number).last
                call = with_possible_layouts(replace(call, launch=None), self.description)
                self.examine(Case(self.target().name, (with_one_dtype(call, self.target()),)))

    def seed(self, number: int = 0) -> int:
        return (self.options.seed * 1000 + number) * 64 + 1

    def examine(self, case: Case, *, own_rule: bool = False) -> Report | None:
        """Examines a case, and grades what disagrees; None where the solution did not return in time."""
        self.judgement.cases += 1
        refused = self.worker.log.rejected
        ran = self.worker.run(case)
        if ODD_VALUES not in self.judgement.kinds:
            self.judgement.refused += self.worker.log.rejected - refused
        report = ran if isinstance(ran, Report) else self.worker.report(case, ran, by_own_rule=own_rule)
        if own_rule and self.worker.last.own_rule is not None:
            self.judgement.own_rule = self.worker.last.own_rule and self.judgement.own_rule is not False
        if own_rule and any(one.symptom in ("hung", "out-of-memory") for one in report.findings):
            return None
        for finding in report.filed_findings:
            self.handle(case, finding)
        return report

    def handle(self, case: Case, finding: Finding) -> None:
        """Confirms and weighs a finding. Raises Stop where it counts."""
        if self.findings.is_known(finding):
            return
        try:
            with self.limits.finding():
                bug = self.triage.confirm(case, finding, ())
                if bug is None:
                    # It agrees in a process that has run nothing before.
                    self.examine_history()
                    return
                dtypes = dict.fromkeys(one.dtype for one in case.last.arguments.values() if one.is_float)
                self.triage.target = self.target(*dtypes, backward=bool(case.last.cotangents))
                evidence = self.findings.weigh(bug, case, finding)
        except OutOfTime:
            if ODD_VALUES not in self.judgement.kinds:
                self.judgement.undecided.append(leave_open(case, finding))
            raise
        if evidence is not None:
            (self.judgement.undecided if evidence.is_open else self.judgement.evidence).append(evidence)
            if evidence.counts and not evidence.is_open:
                raise Stop

    def conclude(self) -> None:
        """Sets the verdict by what was found."""
        log, judgement = self.worker.log, self.judgement
        judgement.calls, judgement.launches, judgement.dims = log.calls, log.launches, log.dims
        judgement.notes += [*self.description.unvaried_notes, *log.notes]
        if cut_off := self.limits.cut_off:
            judgement.cut_off = cut_off
            judgement.notes.append(f"not finished in time: {', '.join(cut_off)}")
        judgement.decide()
        if judgement.verdict == RIGHT and not log.returned:
            judgement.verdict, judgement.reason, judgement.cause = UNSUPPORTED, "no case could be run", MACHINE
