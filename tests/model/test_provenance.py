"""Provenance reads what any version wrote, as typed values, and writes the same text again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzz.model.finding import Finding, Verdict
from fuzz.model.provenance import Provenance
from fuzz.model.rate import Rate

FIELDS = {
    "backend": "cpu",
    "torch": "2.13.0",
    "device": "a: b",
    "rate": "2/10",
    "seed": "0",
    "first_case": "17",
    "verdict": "kernel",
    "digits": "800",
    "diagnosis": "dx is negated; for x < -3.6",
    "witnesses": "interpreter agrees; cuda cannot run it: no room",
    "cut_off": "shrinking",
}


def test_every_field_is_read_as_what_it_is() -> None:
    seen = Provenance.parse(FIELDS)
    assert (seen.backend, dict(seen.versions)) == ("cpu", {"torch": "2.13.0", "device": "a: b"})
    assert (seen.rate, seen.seed, seen.first_case) == (Rate(2, 10), 0, 17)
    assert seen.verdict == Verdict("kernel", digits=800)
    assert seen.diagnosis == ("dx is negated", "for x < -3.6")
    assert seen.cut_off == "shrinking"
    assert seen.cross_checks == {"interpreter": "agrees", "cuda": "cannot run it: no room"}


def test_a_part_that_holds_the_mark_between_parts_is_read_as_one() -> None:
    said = Provenance(
        diagnosis=("rounded on the way; promise less", "only for x"), cross_checks={"cuda": "raised A; b c"}
    )
    again = Provenance.parse(said.fields())
    assert again.diagnosis == ("rounded on the way, promise less", "only for x")
    assert again.cross_checks == {"cuda": "raised A, b c"}


@pytest.mark.parametrize("reverse", [False, True])
def test_the_text_is_written_as_it_was_read_in_its_order(reverse: bool) -> None:
    fields = dict(reversed(FIELDS.items())) if reverse else FIELDS
    assert list(Provenance.parse(fields).fields().items()) == list(fields.items())


@pytest.mark.parametrize(
    "fields",
    [
        {"rate": "often"},
        {"rate": "3"},
        {"seed": "-1", "first_case": "007"},
        {"verdict": "guilty", "reason": "r", "digits": "many"},
        {"verdict": "kernel", "digits": "08"},
        {"reason": "of nothing"},
        {"backend": "", "torch": ""},
        {"witnesses": "interpreter", "unknown": "x"},
    ],
)
def test_what_no_version_writes_is_kept_as_text(fields: dict[str, str]) -> None:
    seen = Provenance.parse(fields)
    assert seen.fields() == fields and seen == Provenance.parse(seen.fields())
    assert seen.rate is None and seen.seed is None and seen.adjudication.digits == 0


def test_a_verdict_is_kept_without_the_finding_that_it_was_about() -> None:
    verdict = Verdict("kernel", digits=50, finding=Finding("accuracy", ("y",), "value", "m"))
    assert Provenance(verdict=verdict).verdict == replace(verdict, finding=None)
    assert Provenance().adjudication == Verdict("unadjudicated") and Provenance().fields() == {}


@pytest.mark.parametrize("outputs", [("y",), ("dx", "dy"), ("grad y",)])
def test_the_summary_of_a_finding_names_it(outputs: tuple[str, ...]) -> None:
    finding = Finding("mutation", outputs, "written", "m")
    assert Finding.parse_summary(finding.summary) == replace(finding, message=finding.summary)


@pytest.mark.parametrize("text", ["", "accuracy", "accuracy y", "accuracy y nothing", "nobody y value"])
def test_what_is_no_summary_names_nothing(text: str) -> None:
    assert Finding.parse_summary(text) is None
