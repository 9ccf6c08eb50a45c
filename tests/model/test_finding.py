"""Which findings may be one bug."""

from __future__ import annotations

from dataclasses import replace

from fuzz.model.finding import Finding


def test_offsets_of_32_bits_are_one_bug_whichever_tensor_is_huge() -> None:
    first, other = (Finding("bounds", (name,), "offset-overflow", "o", source_line=name) for name in ("x", "dy"))
    assert first.shares_output(other) and not first.shares_output(replace(other, symptom="stray-read"))


def test_what_a_write_over_an_input_does_before_and_beside_it_is_one_bug() -> None:
    def company(symptom: str, *outputs: str) -> Finding:
        return Finding("autograd", outputs, symptom, "a")

    assert company("before", "before_q", "before_k").shares_output(company("beside", "beside_q", "both_q"))
    assert company("twice", "dx").shares_output(company("twice", "first_x"))
    assert not company("before", "before_q").shares_output(company("twice", "first_q"))
    assert not company("before", "before_q").shares_output(company("before", "before_k"))
