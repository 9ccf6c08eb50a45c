"""Describes every oracle without tensors: its name, symptoms, share of cases and title, in the order of filing.

The check of an oracle, and how a stand-alone script repeats it, stand on its class: that of `NAME` is the class `Name`
of fuzz/oracles/NAME.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

Subjects = set[tuple[str, ...]]


def affected_outputs(symptom: str, outputs: Iterable[str]) -> Subjects:
    """Every output is a subject of its own."""
    return {(name,) for name in outputs}


@dataclass(frozen=True)
class OracleSpec:
    """What is known of an oracle without tensors.

    `title` says in reports what is wrong. `symptoms` are in the order in which findings of one case are sorted.
    The oracle examines one case in `share`, the first number for plans with one replica and the second for plans with
    more; None means every case. Where `stops` is set, oracles after it do not examine a case in which it fires.
    `one_bug_per_target` says that one target has one such bug, as which outputs are affected is chance. `compares_runs`
    says that it compares two runs of which both may be wrong, `has_diagnosis` that its class can say more of a finding
    than its message does. `subjects` gives what a finding of a symptom in these outputs is about: findings that have
    one in common may be one bug. `classes` maps symptoms to their class, where that is not the symptom itself: a cause
    may show any symptom of one class. Where `joins_classes` is set, symptoms of several classes that one case shows in
    one output or tensor have one cause unless something tells them apart. Symptoms
    `distinguished_by_output` say nothing of what is wrong beyond the output that shows them, as NaN of one and an
    overflow of another do. What `is_promise` reports is never of low severity: harm to memory and to inputs, and what
    holds only where a target states it.
    """

    name: str
    title: str
    symptoms: tuple[str, ...]
    share: tuple[int, int] | None = None
    stops: bool = True
    one_bug_per_target: bool = False
    compares_runs: bool = False
    has_diagnosis: bool = False
    joins_classes: bool = False
    distinguished_by_output: tuple[str, ...] = ()
    is_promise: bool = False
    subjects: Callable[[str, Iterable[str]], Subjects] = affected_outputs
    classes: Mapping[str, str] = field(default_factory=dict)

    def symptom_class(self, symptom: str) -> str:
        """The class of a symptom."""
        return self.classes.get(symptom, symptom)


def affected_tensors(symptom: str, outputs: Iterable[str]) -> Subjects:
    """The tensors of autograd's outputs: an input that is overwritten spoils the operations before and beside it."""
    what = "written" if symptom in ("before", "beside") else symptom
    tensors = {(what, re.sub("^(before_|beside_|both_|first_|d)", "", name)) for name in outputs}
    return affected_outputs(symptom, outputs) | tensors


FAULT = OracleSpec(
    "fault",
    "the kernel crashes, hangs, raises or does not compile",
    ("died", "hung", "raised", "out-of-memory", "compile-error"),
    is_promise=True,
)
BOUNDS = OracleSpec(
    "bounds",
    "memory is read or written where it must not be, or left unwritten",
    ("offset-overflow", "stray-write", "write-conflict", "race", "stray-read", "unwritten-read", "unwritten"),
    stops=False,
    classes={
        **dict.fromkeys(("stray-write", "stray-read"), "stray"),
        **dict.fromkeys(("write-conflict", "race"), "conflict"),
        **dict.fromkeys(("unwritten-read", "unwritten"), "unwritten"),
    },
    is_promise=True,
)
MUTATION = OracleSpec(
    "mutation",
    "an input or an earlier output is written, or an output shares an input's memory",
    ("written", "aliased", "overwritten"),
    stops=False,
    joins_classes=True,
    is_promise=True,
)
REJECTS = OracleSpec(
    "rejects",
    "an input outside the contract is computed instead of refused",
    ("accepted",),
    share=(12, 16),
    is_promise=True,
)
ACCURACY = OracleSpec(
    "accuracy",
    "a result is further from the reference than honest rounding allows",
    ("nonfinite", "sign", "value", "bits", "reference"),
    has_diagnosis=True,
    distinguished_by_output=("nonfinite",),
    classes={"sign": "value"},
)
AUTOGRAD_SYMPTOMS = (
    *("missing", "raised", "subset", "output", "no-grad"),
    *("before", "beside", "after", "twice", "saved", "between"),
)
AUTOGRAD = OracleSpec(
    "autograd",
    "a gradient is wrong in a graph with other operations",
    AUTOGRAD_SYMPTOMS,
    # The graphs in which a kernel runs show what depends on a plan, seldom on the values of its replicas.
    share=(8, 64),
    subjects=affected_tensors,
    classes=dict.fromkeys(AUTOGRAD_SYMPTOMS, "gradient"),
)
DETERMINISTIC = OracleSpec(
    "deterministic",
    "the same case has other bits when it runs again",
    ("bits",),
    share=(4, 16),
    one_bug_per_target=True,
    has_diagnosis=True,
    is_promise=True,
)
# Invariance does not apply to cases without a split, layout not to contiguous ones: of all cases each of them examines
# one in 16 at least, where plans have several replicas.
INVARIANCE = OracleSpec(
    "invariance",
    "a row depends on the batch that it is computed in",
    ("bits", "drift"),
    share=(1, 3),
    compares_runs=True,
    classes={"drift": "bits"},
    is_promise=True,
)
LAYOUT = OracleSpec(
    "layout",
    "a result depends on strides, offsets or alignment",
    ("bits", "drift"),
    share=(4, 12),
    compares_runs=True,
    classes={"drift": "bits"},
)
SCALING = OracleSpec(
    "scaling",
    "what must hold exactly under powers of two, shifts or permutations does not",
    ("scale", "shift", "permutation"),
    share=(8, 16),
    compares_runs=True,
    is_promise=True,
)
PARITY = OracleSpec(
    "parity",
    "backends, or orders of the same sums, disagree beyond the bound",
    ("value", "drift"),
    share=(8, 32),
    compares_runs=True,
)

ORACLES: tuple[OracleSpec, ...] = (
    *(FAULT, BOUNDS, MUTATION, REJECTS, ACCURACY, AUTOGRAD),
    *(DETERMINISTIC, INVARIANCE, LAYOUT, SCALING, PARITY),
)
"""Every oracle: a case is filed under the first one that fires."""
ORACLE_NAMES = tuple(spec.name for spec in ORACLES)
SAMPLED_ORACLES = tuple(spec.name for spec in ORACLES if spec.share)
"""The names of oracles that examine a share of the cases."""
SYMPTOMS = {spec.name: spec.symptoms for spec in ORACLES}


def find_oracle_spec(name: str) -> OracleSpec:
    """The oracle of that name. ValueError where there is none."""
    return ORACLES[ORACLE_NAMES.index(name)]


def sample_oracles(index: int, replica_count: int) -> tuple[str, ...]:
    """The names of the sampled oracles that examine case `index`, whose plan has so many replicas."""
    shares = {spec.name: spec.share[replica_count > 1] for spec in ORACLES if spec.share}
    return tuple(name for name, share in shares.items() if index % share == share // 2)
