"""What a case has off its default."""

from __future__ import annotations

from dataclasses import replace

from fuzz.model.case import Case
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.target.spec import Target
from fuzz.triage.conditions import non_defaults


def test_what_a_case_has_off_its_default_is_what_its_cause_may_need(
    layernorm: Target, two_cases: tuple[Case, Case]
) -> None:
    call = two_cases[0].last
    plain = {name: replace(value, dtype="float32", layout=CONTIGUOUS) for name, value in call.arguments.items()}
    plain["x"] = replace(plain["x"], dtype="bfloat16", layout=Layout(pad=2))
    case = replace(two_cases[0], calls=(replace(call, arguments=plain, options={**call.options, "eps": 1e-12}),))
    assert non_defaults(case, layernorm) == {"x dtype", "x layout", "eps"}
