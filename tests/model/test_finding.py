"""Which findings may be one bug."""

from __future__ import annotations

from dataclasses import replace

from fuzz.model.finding import Element, Finding


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


def test_a_headline_of_nan_is_about_one_output_and_one_of_numbers_about_any() -> None:
    kinds = (("y", "value"), ("z", "nonfinite"), ("w", "nonfinite"))
    finding = Finding("accuracy", ("y", "z", "w"), "nonfinite", "w[0] is nan", kinds=kinds)
    assert finding.headline_part.subjects == {("accuracy", "nonfinite", "z")}
    named = replace(finding, elements=(Element("y", (0,), "1", "", "2"), Element("w", (0,), "nan", "", "2")))
    assert named.headline_part.subjects == {("accuracy", "nonfinite", "w")}
    numbers = replace(named, symptom="value", kinds=(("y", "value"), ("z", "sign")))
    assert numbers.headline_part.outputs == ("y", "z")


def test_a_write_and_shared_memory_are_filed_together_and_the_write_is_the_headline() -> None:
    finding = Finding("mutation", ("x",), "written", "w", kinds=(("x", "written"), ("x", "aliased")))
    assert finding.of_filed_class.subjects == {("mutation", "written", "x"), ("mutation", "aliased", "x")}
    assert finding.headline_part.subjects == {("mutation", "written", "x")}
