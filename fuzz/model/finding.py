"""Defines a finding: evidence of one disagreement, as a value that an oracle returns.

A case is filed under the first oracle that fires; the signature names the bug, so that many hits of one bug are one
finding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuzz.model.oracle_specs import ACCURACY, ORACLE_NAMES, PARITY, SYMPTOMS, find_oracle_spec
from fuzz.text import clean_text

PARITY_PREFIX = "cpu and Triton's interpreter do not compute the same: on cpu "
"""How the message of a finding begins that only one of two backends has."""
VERDICTS = ("kernel", "reference", "undecided", "unadjudicated", "pending")


@dataclass(frozen=True)
class Element:
    """One element that shows the disagreement; `got` is its pattern, `want` the other side's value, both as text.

    `exact` is the value by arbitrary precision, where there is one.
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
    """What one oracle saw in one case. `call` is the index of the call that shows it, `ratio` error over bound.

    `source_line` is that of an access, where the oracle knows it. `change` is the argument that was changed, and the
    number by which it was, where a rerun with a changed argument shows the finding. Texts are made storable and
    printable (`text.clean_text`), whatever a launcher raised or returned.
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
        """The same as a finding of the backend that saw it, of its accuracy: that is what shows again."""
        if not self.only_on_cpu:
            return self
        return replace(self, oracle=ACCURACY.name, message=self.message.removeprefix(PARITY_PREFIX))

    @property
    def as_parity(self) -> Finding:
        """An accuracy finding as it is told where another backend does not see it: both do not compute the same."""
        return replace(self, oracle=PARITY.name, symptom="value", message=PARITY_PREFIX + self.message)

    def same_bug(self, other: Finding) -> bool:
        """Whether other may be the same bug: the same oracle, and an output, tensor or the source line in common.

        Which pointer a 32-bit offset is too small for depends on which tensor is huge.
        """
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
    exact value; "" where two precisions agree on it.
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


def finding_order(finding: Finding) -> tuple[int, int]:
    """Key that sorts findings of one case by the oracle, then symptom, under which they are filed."""
    return ORACLE_NAMES.index(finding.oracle), SYMPTOMS[finding.oracle].index(finding.symptom)
