"""Defines a finding: evidence of one disagreement, as a value that an oracle returns.

A case is filed under the first oracle that fires; the signature names the bug, so that many hits of one bug are one
finding.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from fuzz.escaping import clean_text
from fuzz.model.oracle_specs import ACCURACY, FAULT, ORACLE_NAMES, PARITY, SYMPTOMS, find_oracle_spec

Subject = tuple[str, ...]
Pattern = tuple[str, str]
"""An output, and one of PATTERNS."""
PATTERNS = ("offset", "factor", "number")
"""What wrong elements may share: the number that they are off by, are multiplied by, or are themselves."""
FAULT_DETAIL = re.compile(r"(?:raised|the worker process died of) (exit status \d+|[\w.]+)")
"""The part of a fault's message that names its kind: the type of an exception, or a signal."""

PARITY_PREFIX = "cpu and Triton's interpreter do not compute the same: on cpu "
"""Begins the message of a finding that only one of two backends shows."""
ENCLOSURE, INTERVALS = "enclosure", "intervals"
"""Proofs of a verdict: balls of many digits around the exact value, or intervals in float64."""
REFERENCE = "reference"
"""The symptom of a reference that is wrong, which the oracle, or the verdict on any other symptom, says."""
VERDICTS = ("kernel", "reference", "undecided", "unadjudicated", "pending")
"""Names of verdicts; `pending` is that of a finding that is not adjudicated yet. `Verdict` describes the others."""


@dataclass(frozen=True)
class Element:
    """One element that shows the disagreement, in texts.

    `got` is its value and `got_word` the bits of that in hex, `want` is the other side's value, `exact` the value by
    arbitrary precision, where there is one.
    """

    output: str
    index: tuple[int, ...]
    got: str
    got_word: str
    want: str
    bound: str = ""
    ulps: str = ""
    exact: str = ""

    def __post_init__(self) -> None:
        for name in ("output", "got", "got_word", "want", "bound", "ulps", "exact"):
            object.__setattr__(self, name, clean_text(getattr(self, name)))


@dataclass(frozen=True)
class Finding:
    """What one oracle saw in one case. Texts are made storable and printable (`text.clean_text`).

    - `call`: the index of the call that shows it.
    - `ratio`: the largest error over its bound. `error`: the largest error over the largest value of an output.
    - `compared`: how many elements its `outputs` have; `disagreeing`: how many of these are wrong.
    - `source_line`: that of an access, or of what raised, where the oracle knows it.
    - `change`: the argument that a rerun has changed, and the number by which it was; or, with 1, the one output that
      was used.
    - `kinds`: (output, symptom) of every class of symptom that an output shows, where the oracle compares each one.
    - `largest`: (output, the largest finite number that a wrong element of it is or should be), where it is known.
    - `patterns`: what all wrong elements of an output share. `unlike`: a pattern that most earlier findings of the run
      share, and that this one does not.

    What another finding must have to count as this one again: an error of `least_error` at least, and no pattern
    `other_than`.
    """

    oracle: str
    outputs: tuple[str, ...]
    symptom: str
    message: str
    elements: tuple[Element, ...] = ()
    call: int = 0
    ratio: float = 0.0
    disagreeing: int = 0
    compared: int = 0
    source_line: str = ""
    change: tuple[str, float] | None = None
    kinds: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    error: float = field(default=0.0, compare=False)
    least_error: float = field(default=0.0, compare=False)
    largest: tuple[tuple[str, float], ...] = field(default=(), compare=False)
    patterns: frozenset[Pattern] = field(default=frozenset(), compare=False)
    other_than: Pattern | None = field(default=None, compare=False)
    unlike: Pattern | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.symptom not in SYMPTOMS[self.oracle]:
            raise ValueError(f"oracle {self.oracle!r} has no symptom {self.symptom!r}")
        object.__setattr__(self, "outputs", tuple(map(clean_text, self.outputs)))
        object.__setattr__(self, "message", clean_text(self.message))
        object.__setattr__(self, "source_line", clean_text(self.source_line))

    @property
    def output(self) -> str:
        """The outputs' names joined by ``+``."""
        return "+".join(self.outputs)

    @property
    def summary(self) -> str:
        """Oracle, outputs and symptom on one line."""
        return f"{self.oracle} {self.output} {self.symptom}"

    @staticmethod
    def parse_summary(text: str) -> Finding | None:
        """The finding that a summary names, with the summary as its message; None for any other text."""
        oracle, _, rest = text.partition(" ")
        outputs, _, symptom = rest.rpartition(" ")
        if symptom not in SYMPTOMS.get(oracle, ()):
            return None
        return Finding(oracle, tuple(outputs.split("+")), symptom, text)

    @property
    def only_on_cpu(self) -> bool:
        """Whether it is a finding of accuracy that another backend does not see."""
        return self.oracle == PARITY.name and self.symptom == "value"

    @property
    def as_accuracy(self) -> Finding:
        """This finding of parity as the accuracy finding that a rerun on its backend shows; others as they are."""
        if not self.only_on_cpu:
            return self
        return replace(self, oracle=ACCURACY.name, message=self.message.removeprefix(PARITY_PREFIX))

    @property
    def as_parity(self) -> Finding:
        """The same finding as one of parity, where another backend does not show it: the two differ."""
        return replace(self, oracle=PARITY.name, symptom="value", message=PARITY_PREFIX + self.message)

    def blames_reference(self, verdict: Verdict) -> bool:
        """Whether exact values say that the reference is wrong and the kernel right: to the oracle, or the verdict."""
        return REFERENCE in (self.symptom, verdict.name)

    @property
    def symptom_class(self) -> str:
        """The class of the symptom, with the type of what was raised, or the signal of which the process died."""
        detail = FAULT_DETAIL.match(self.message) if self.oracle == FAULT.name else None
        return " ".join(
            (find_oracle_spec(self.oracle).symptom_class(self.symptom), *(detail.groups() if detail else ()))
        )

    @property
    def subjects(self) -> frozenset[Subject]:
        """What it is about, as (oracle, class of symptom, output or tensor); of an oracle with one bug, its name."""
        kinds = self.kinds or tuple((output, self.symptom) for output in self.outputs)
        return frozenset().union(*(self._subjects_of(*kind) for kind in kinds))

    def _subjects_of(self, output: str, symptom: str) -> set[Subject]:
        spec = find_oracle_spec(self.oracle)
        if spec.one_bug_per_target:
            return {(self.oracle,)}
        if symptom == "offset-overflow":
            # Which pointer a 32-bit offset is too small for depends on which tensor is huge.
            return {(self.oracle, symptom)}
        name = self.symptom_class if symptom == self.symptom else spec.symptom_class(symptom)
        return {(self.oracle, name, *subject) for subject in spec.subjects(symptom, [output])}

    @property
    def of_filed_class(self) -> Finding:
        """The part in the class of symptom under which it is filed; all where its oracle files classes together."""
        return self if find_oracle_spec(self.oracle).joins_classes else self._of_class

    @property
    def joined(self) -> tuple[Finding, ...]:
        """A finding for each other symptom that its oracle files together with the first one."""
        others = (kind for kind in self.kinds if kind[1] != self.symptom)
        joins = find_oracle_spec(self.oracle).joins_classes
        return tuple(replace(self, outputs=(kind[0],), symptom=kind[1], kinds=()) for kind in others if joins)

    @property
    def _of_class(self) -> Finding:
        filed = {subject for subject in self.subjects if subject[1:2] in ((), (self.symptom_class,))}
        return self.restricted_to(filed) or self

    @property
    def headline_part(self) -> Finding:
        """The part that its headline is about: the class of symptom under which it is filed.

        Of symptoms that are distinguished by output it is only the output of the first element listed.
        """
        filed = self._of_class
        if self.symptom not in find_oracle_spec(self.oracle).distinguished_by_output:
            return filed
        named = (element.output for element in self.elements if element.output in filed.outputs)
        output = next(named, filed.outputs[0])
        return filed.restricted_to({subject for subject in filed.subjects if subject[-1] == output}) or filed

    def restricted_to(self, subjects: Collection[Subject]) -> Finding | None:
        """The part of the finding that is about some of these subjects; None where there is none."""
        kinds = self.kinds or tuple((output, self.symptom) for output in self.outputs)
        kept = tuple(kind for kind in kinds if self._subjects_of(*kind) & set(subjects))
        if not kept:
            return None
        # The symptom that sorts first is the one under which a case is filed.
        symptom = min((symptom for _, symptom in kept), key=SYMPTOMS[self.oracle].index)
        return replace(self, outputs=tuple(dict.fromkeys(output for output, _ in kept)), symptom=symptom, kinds=kept)

    def shares_place(self, other: Finding) -> bool:
        """Whether both are of one class at one source line of the kernel or launcher: then they have one cause."""
        same_class = (self.oracle, self.symptom_class) == (other.oracle, other.symptom_class)
        return same_class and self.source_line != "" and self.source_line == other.source_line

    def is_other_fault(self, other: Finding) -> bool:
        """Whether both are faults, of different kinds or raised at different lines."""
        if not self.oracle == other.oracle == FAULT.name:
            return False
        lines = {self.source_line, other.source_line} - {""}
        return self.symptom_class != other.symptom_class or len(lines) > 1

    def shows_symptom_of(self, other: Finding) -> bool:
        """Whether it counts as another finding again: at one place, or with a class of symptom of one output in common
        and what the other one asks for.
        """
        if self.shares_place(other):
            return True
        return bool(self.subjects & other.subjects) and not self.is_other_fault(other) and self.meets(other)

    def meets(self, other: Finding) -> bool:
        """Whether it has what counts as another finding again: `least_error`, and an output without `other_than`."""
        excluded = other.other_than
        is_excluded = excluded is not None and (excluded in self.patterns or excluded[0] not in self.outputs)
        return self.error >= other.least_error and not is_excluded

    def shares_output(self, other: Finding) -> bool:
        """Whether both are of one oracle, with an output, tensor or source line in common, whatever the symptoms."""
        if self.oracle != other.oracle:
            return False
        spec = find_oracle_spec(self.oracle)
        if spec.one_bug_per_target or self.symptom == other.symptom == "offset-overflow":
            return True
        mine, others = (spec.subjects(one.symptom, one.outputs) for one in (self, other))
        return bool(mine & others) or (self.source_line != "" and self.source_line == other.source_line)


@dataclass(frozen=True)
class Verdict:
    """What the exact value says of an accuracy finding, with the finding that it confirms, and the digits it took.

    kernel: the kernel is wrong. reference: the reference is. undecided: neither is, so that this is no finding.
    unadjudicated: there is no exact value, for this reason. proof: "enclosure" where interval arithmetic proves the
    exact value to many digits, "intervals" where float64's proves enough; "" where two precisions agree on it.
    """

    name: str
    reason: str = ""
    digits: int = 0
    finding: Finding | None = None
    proof: str = ""

    def __post_init__(self) -> None:
        if self.name not in VERDICTS:
            raise ValueError(f"there is no verdict {self.name!r}")
        object.__setattr__(self, "reason", clean_text(self.reason))
        object.__setattr__(self, "proof", clean_text(self.proof))

    @property
    def text(self) -> str:
        """The verdict with its reason."""
        return self.name + (f" ({self.reason})" if self.reason else "")


def filing_order(finding: Finding) -> tuple[int, int]:
    """Key that sorts the findings of one case: by oracle, as one may cause those of later ones, then by symptom."""
    return ORACLE_NAMES.index(finding.oracle), SYMPTOMS[finding.oracle].index(finding.symptom)
