"""Entries as text: what is written is read back, and nothing else is read."""

from __future__ import annotations

import sys
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from fuzz.corpus import codec
from fuzz.errors import CorpusError
from fuzz.escaping import is_storable
from fuzz.model.case import Argument, Call, Case, Split
from fuzz.model.edit import resize
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.grade import Grade, TypicalCase
from fuzz.model.layout import Layout
from fuzz.model.oracle_specs import SYMPTOMS
from fuzz.model.provenance import Provenance
from fuzz.model.rate import Rate
from fuzz.model.recipes import Patched, recipe
from fuzz.report.entry_text import format_entry
from fuzz.search.engines import RandomEngine
from fuzz.shrink.passes import write_out_small
from fuzz.target.spec import Target

ROOT = Path(__file__).parents[2]


def refusal(text: str | bytes) -> str:
    """Why a text is not read; the reason is one line that a person can read."""
    with pytest.raises(CorpusError) as caught:
        codec.loads(text if isinstance(text, bytes) else text.encode())
    message = str(caught.value)
    assert "\n" not in message and 5 < len(message) < 400
    return message


def changed(entry: Entry, old: str, new: str) -> str:
    """The entry's text with one piece changed."""
    text = codec.dumps(entry)
    assert text.count(old) == 1, text
    return text.replace(old, new)


def test_drawn_cases_come_back_as_they_were(built_in: Target) -> None:
    engine = RandomEngine(built_in, 1)
    small = [case for case in map(engine.case, range(250)) if case.elements() < 1 << 12]
    assert len(small) > 150
    for case in small:
        for form in (case, write_out_small(case)):
            entry = Entry(form)
            text = codec.dumps(entry)
            read = codec.loads(text.encode())
            assert read == entry
            assert read.case.key == form.key
            assert codec.dumps(read) == text


def test_a_grade_comes_back_as_it_was_and_changes_neither_name_nor_digest(entry: Entry) -> None:
    assert entry.finding is not None
    rows = Case(entry.case.target, (replace(entry.case.last, dims={"N": 5}),), Split(0, 1, 2, 0))
    typical = TypicalCase(rows, replace(entry.finding, message="typical: 5"), Rate(37, 60))
    for grade in (
        Grade("high", "ordinary", typical, 1.25, "float32"),
        Grade("low", "extreme", None, inf, "float16", "why: x"),
    ):
        graded = replace(entry, grade=grade)
        text = codec.dumps(graded)
        assert codec.loads(text.encode()) == graded and text.startswith("format: fuzz-case/2\n")
        assert (graded.name, graded.digest) == (entry.name, entry.digest)
        assert codec.dumps(replace(graded, grade=None)) == codec.dumps(entry)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("severity: high", "severity: huge", "'huge' is not one of low, medium, high"),
        ("input_class: ordinary", "input_class: odd", "'odd' is not one of ordinary"),
        ("rate: 37/60", "rate: 61/60", "'61/60', not a number of draws"),
        ("rate: 37/60", "rate: 37", "'37', not a number of draws"),
    ],
)
def test_a_grade_that_makes_no_sense_is_refused(entry: Entry, old: str, new: str, why: str) -> None:
    assert entry.finding is not None
    grade = Grade("high", "ordinary", TypicalCase(entry.case, entry.finding, Rate(37, 60)))
    assert why in refusal(changed(replace(entry, grade=grade), old, new))


def test_a_finding_comes_back_as_it_was(entry: Entry) -> None:
    full = replace(entry, status="accepted", why='known; see #7: "x\\y" – 😀', also=("bounds x, stray-read",))
    assert entry.finding
    full = replace(full, finding=replace(entry.finding, ratio=float("inf"), source_line="kernel.py:7", call=0))
    read = codec.loads(codec.dumps(full).encode())
    assert read == full


@pytest.mark.parametrize("folder", ["corpus", "benchmarks"])
def test_entries_of_this_repository_are_written_again_byte_for_byte(folder: str) -> None:
    files = [path for path in sorted((ROOT / folder).rglob("*.yaml")) if path.read_bytes().startswith(b"format: fuzz-")]
    assert files
    for path in files:
        # An older version put more texts in quotes.
        text, again = path.read_text(encoding="utf-8"), codec.dumps(codec.loads(path.read_bytes()))
        assert again == text or again.replace('"', "") == text.replace('"', ""), path


@pytest.mark.parametrize(
    "why", ["", " ", "-", "- a", "a: b", "#x", "true", "null", "~", "1", "'", "a ", "\\ud800", "\\", "\xa0", "%"]
)
def test_any_text_comes_back_as_it_was(entry: Entry, why: str) -> None:
    assert codec.loads(codec.dumps(replace(entry, why=why)).encode()).why == why


@pytest.mark.parametrize(
    "option", [True, False, 0, -3, 1e-5, 0.1, float("inf"), "tanh", 'a "b" \\ c', "", 1 << 62, 5e-324]
)
def test_options_keep_their_type_and_value(case: Case, option: object) -> None:
    made = case.with_call(0, replace(case.last, options={"o": option}))  # type: ignore[dict-item]
    read = codec.loads(codec.dumps(Entry(made)).encode()).case.last.options["o"]
    assert (type(read), read) == (type(option), option)


def test_overrides_splits_calls_layouts_and_cotangents_come_back() -> None:
    value = Argument(
        ("2*N + 1", "4"), "bfloat16", Patched(recipe("normal", 3), ((0, 0x7FC0), (3, 0))), Layout((1, 0), 2, 3, 4, (0,))
    )
    call = Call({"N": 2, "Z": 0}, {"x": value, "e": Argument(("Z",), "int8", recipe("zeros"))}, {}, {"y": value})
    entry = Entry(Case("t", (call, replace(call, dims={"N": 3, "Z": 1})), Split(1, 2, 3, 4)))
    assert codec.loads(codec.dumps(entry).encode()) == entry


def test_a_case_that_shrank_below_its_overrides_comes_back() -> None:
    value = Argument(("N",), "float32", Patched(recipe("normal", 3), ((7, 1 << 23),)))
    entry = Entry(Case("t", (resize(Call({"N": 8}, {"x": value}), {"N": 5}),)))
    assert entry.case.last.arguments["x"].values == recipe("normal", 3)
    assert codec.loads(codec.dumps(entry).encode()) == entry


HOSTILE_TEXT = "\ud800 \0 \x1b[2J two\n lines \u202e"


def test_what_a_launcher_says_is_cleaned_where_the_record_is_made(entry: Entry) -> None:
    assert entry.finding
    element = replace(entry.finding.elements[0], got=HOSTILE_TEXT, output=HOSTILE_TEXT)
    finding = replace(entry.finding, message=HOSTILE_TEXT * 1000, outputs=(HOSTILE_TEXT,), elements=(element,))
    seen = Provenance(versions={"device": HOSTILE_TEXT}, cross_checks={"cuda": HOSTILE_TEXT}, diagnosis=(HOSTILE_TEXT,))
    full = replace(entry, finding=finding, why=HOSTILE_TEXT, also=(HOSTILE_TEXT,), provenance=seen)
    text = codec.dumps(full)
    assert is_storable(text.replace("\n", "")) and len(text) < 10_000
    read = codec.loads(text.encode())
    assert replace(read, provenance=Provenance()) == replace(full, provenance=Provenance())


def test_what_an_entry_says_is_cleaned_when_it_is_read(entry: Entry) -> None:
    assert entry.finding
    hostile = r'"\ud800 \0 \e[2J two\n lines \u202e \\ud800 \uD83D\uDE00"'
    text = codec.dumps(entry).replace('why: ""', f"why: {hostile}").replace("backend: cpu", f"device: {hostile}")
    read = codec.loads(text.replace('"dx: 1 of 2 elements wrong"', hostile).encode())
    assert read.finding
    cleaned = r"\ud800 \x00 \x1b[2J two  lines \u202e \ud800 \uD83D\uDE00"
    assert {read.why, read.finding.message, read.provenance.versions["device"]} == {cleaned}
    assert codec.loads(codec.dumps(read).encode()) == read


@pytest.mark.parametrize("bad", ["rate: x", 'rate: "5/3"', f'rate: "1/{"9" * 5000}"', 'rate: "-5/3"', "rate: 1/0"])
def test_a_rate_that_is_none_is_kept_as_text(entry: Entry, bad: str) -> None:
    read = codec.loads(changed(entry, "rate: 10/10", bad).encode())
    assert read.provenance.rate is None
    assert "seen" in format_entry(replace(read, finding=None), "p", "c")


def test_the_text_of_an_entry_is_this(entry: Entry) -> None:
    assert (
        codec.dumps(entry)
        == f"""\
format: fuzz-case/1
target: gelu_bw
planted: erf_saturates
status: open
why: ""
digest: {entry.digest}
case:
  calls:
  - dims: {{N: 2}}
    arguments:
      dy:
        shape: [N]
        dtype: float32
        recipe: "normal/1 seed=7 exponent=0"
      x:
        shape: [N]
        dtype: float32
        bits: "0x3f800000 0xc0800000"  # 1.0 -4.0
finding:
  oracle: accuracy
  outputs: [dx]
  symptom: sign
  message: "dx: 1 of 2 elements wrong"
  call: 0
  ratio: 0.0
  disagreeing: 1
  compared: 2
  elements:
  - {{output: dx, index: 1, got: 0.5, got_word: 0x3f000000, want: "-0.5", bound: 1e-09, ulps: 3}}
seen:
  backend: cpu
  rate: 10/10
"""
    )


@pytest.mark.parametrize("data", [b"", b"\n \n\t\n"])
def test_an_empty_file_is_refused(data: bytes) -> None:
    assert refusal(data) == "the file is empty"


@pytest.mark.parametrize("data", [b"\x80\x02}q\x00.", b"\xff\xfe\x00", b"format: fuzz-case/1\n\0", bytes(range(256))])
def test_a_binary_file_is_refused(data: bytes) -> None:
    assert "binary" in refusal(data)


def test_the_symptom_of_each_output_is_kept_where_they_are_several(entry: Entry) -> None:
    assert entry.finding is not None and "kinds" not in codec.dumps(entry)
    kinds = (("dx", "nonfinite"), ("grad y", "value"))
    several = replace(entry, finding=replace(entry.finding, outputs=("dx", "grad y"), symptom="nonfinite", kinds=kinds))
    again = codec.loads(codec.dumps(several).encode())
    assert again.finding is not None and again.finding.kinds == kinds
    assert again.finding.subjects == several.finding.subjects
    text = codec.dumps(several).replace("value grad y", "worse grad y")
    assert "a kind of a finding is a symptom and an output" in refusal(text)


def test_a_file_that_is_too_large_is_refused_unread(entry: Entry) -> None:
    text = codec.dumps(entry) + "#" * codec.LARGEST_ENTRY
    assert f"more than the {codec.LARGEST_ENTRY} bytes" in refusal(text)


@pytest.mark.parametrize("version", ["fuzz-case/3", "fuzz-case/10", "fuzz-case/1.0", "x", "fuzz-case/1 "])
def test_another_version_is_refused_with_what_it_says(entry: Entry, version: str) -> None:
    message = refusal(changed(entry, "format: fuzz-case/1", f"format: {version}"))
    assert f"format: {version}" in message and "newer version" in message


def test_the_format_stands_on_line_1(entry: Entry) -> None:
    assert "line 1" in refusal("\n" + codec.dumps(entry))


HOSTILE = [
    ('why: ""', "why: !!python/object/apply:os.system ['touch /tmp/x']", "tag"),
    ('why: ""', "why: !!str x", "tag"),
    ('why: ""', "why: !custom x", "tag"),
    ('why: ""', "why: &a x", "anchors and aliases"),
    ('why: ""', "why: *a", "aliases"),
    ("status: open", "status: open\nstatus: fixed", "key 'status' is repeated"),
    ("{N: 2}", "{N: 2, N: 3}", "key 'N' is repeated"),
    ("{N: 2}", "{<<: {N: 2}}", "'<<', which is not a name"),
    ("{N: 2}", "{[a]: 2}", "not plain text"),
    ("status: open", "status: closed", "status 'closed' is not one of"),
    ("status: open", "status: [open]", "status is not text"),
    ("status: open\n", "", "lacks 'status'"),
    ("target: gelu_bw", "target: ../evil.py", "not a name; a path is not allowed"),
    ("target: gelu_bw", "target: /tmp/evil.py:x", "not a name"),
    ("target: gelu_bw", "target: evil.py", "not a name"),
    ("target: gelu_bw", "target: {a: b}", "target is not text"),
    ("target: gelu_bw", "target: other", "digest is"),
    ("planted: erf_saturates", "planted: ../x", "planted is '../x'"),
    ("status: open", "status: open\nrun: rm", "unknown key 'run' in an entry"),
    ("0xc0800000", "0xc0800001", "digest is"),
    ("seed=7", "seed=8", "digest is"),
    ("0xc0800000", "0x1c0800000", "does not fit float32"),
    ("0xc0800000", "c0800000", "not hex words"),
    ("0xc0800000", "0xc0_0000", "not hex words"),
    (" 0xc0800000", "", "1 bits for 2 elements"),
    ("normal/1", "normal/9", "unknown recipe normal/9"),
    ("normal/1", "nonsense/1", "unknown recipe"),
    ("normal/1 seed=7", "normal/1 seed=99999999999999999999", "recipe"),
    ("{N: 2}", "{N: -2}", "N is '-2', not a whole number"),
    ("{N: 2}", "{N: 2.5}", "not a whole number"),
    ("{N: 2}", "{N: 0x2}", "not a whole number"),
    ("{N: 2}", "{N: ٢}", "not a whole number"),
    ("{N: 2}", "{N: " + "9" * 5000 + "}", "not a whole number"),
    ("{N: 2}", "{N: 99999999999}", "elements, more than"),
    ("{N: 2}", "{N: 999999999999999999}", "N is 999999999999999999, more than"),
    ("{N: 2}", "{N: [2]}", "N is not text"),
    ("{N: 2}", "[N]", "dims is not a mapping"),
    ("{N: 2}", "{K: 2}", "uses 'N', which is not a dim"),
    ("  calls:\n", "  calls: []\n  more:\n", "unknown key 'more' in case"),
    ("outputs: [dx]", "outputs: dx", "outputs is not a list"),
    ("outputs: [dx]", "outputs: [[dx]]", "one of outputs is not text"),
    ("symptom: sign", "symptom: strange", "has no symptom 'strange'"),
    ("oracle: accuracy", "oracle: [a]", "oracle is not text"),
    ("call: 0", "call: 1", "call is 1, more than 0"),
    ("index: 1", "index: x", "index is 'x'"),
    ("{N: 2}", "{N: 2}\n    options: {a: " + "9" * 20 + "}", "a is '99999999999999999999', which no integer of 64"),
    (
        "shape: [N]\n        dtype: float32\n        bits",
        f"shape: [{'N, ' * 99}N]\n        dtype: float32\n        bits",
        "more than 64",
    ),
    ("disagreeing: 1", "disagreeing: 9007199254740993", "disagreeing is 9007199254740993, more than"),
    ("disagreeing: 1", "disagreeing: nan", "disagreeing is 'nan', not a whole number"),
    ("index: 1", "index: 4611686018427387904", "index is 4611686018427387904, more than"),
    ("ulps: 3", "colour: 3", "unknown key 'colour' in an element"),
    ("backend: cpu", "backend: {a: b}", "backend is not text"),
    ("  backend: cpu", "  back end: cpu", "'back end', which is not a name"),
    ('why: ""', "why: " + "[" * 100 + "]" * 100, "nested more than 12 deep"),
    ('why: ""', 'why: "\\UFFFFFFFF"', "not readable"),
    ('why: ""', 'why: "', "not readable"),
    ('why: ""', 'why: ""\n---\nwhy: ""', "not readable"),
]


@pytest.mark.parametrize(("old", "new", "reason"), HOSTILE)
def test_what_is_not_an_entry_is_refused(entry: Entry, old: str, new: str, reason: str) -> None:
    assert reason in refusal(changed(entry, old, new))


LAYOUTS = [
    ("offset: 1048576, reach: 41", "reach"),
    ("step: 0", "step of 0"),
    ("step: -1", "not a whole number"),
    ("offset: 99999999", "more than"),
    ("reach: 64", "reach"),
    ("expand: [0, 0]", "expands a dim twice"),
    ("order: [1, 0]", "does not fit 1 dims"),
    ("expand: 0", "expand is not a list"),
    ("colour: 1", "unknown key 'colour' in a layout"),
]


@pytest.mark.parametrize(("layout", "reason"), LAYOUTS)
def test_a_layout_that_no_tensor_has_is_refused(entry: Entry, layout: str, reason: str) -> None:
    bad = f"shape: [N]\n        dtype: float32\n        layout: {{{layout}}}\n        bits"
    assert reason in refusal(changed(entry, "shape: [N]\n        dtype: float32\n        bits", bad))


SHAPES = [
    (f"N*{1 << 50}", "elements, more than"),
    ("N - 3", "negative size"),
    ("4//(N - 2)", "divides by 0"),
    ("__import__('os')", "size expression"),
    ("N" + "*N" * 90, "elements, more than"),
    ("N" + "+N" * 200, "more than 400 characters"),
    ("(" * 199 + "N", "size expression"),
]


@pytest.mark.parametrize(("shape", "reason"), SHAPES)
def test_a_shape_that_no_tensor_has_is_refused(entry: Entry, shape: str, reason: str) -> None:
    bad = f'shape: ["{shape}"]\n        dtype: float32\n        bits'
    assert reason in refusal(changed(entry, "shape: [N]\n        dtype: float32\n        bits", bad))


@pytest.mark.parametrize("override", ["x", "0: 0x1", "0:1", "5: 1", "0: 1ffffffff", "1: 0, 0: 0", "0: 0, 0: 1", ""])
def test_overrides_that_fit_no_tensor_are_refused(entry: Entry, override: str) -> None:
    line = 'recipe: "normal/1 seed=7 exponent=0"'
    refusal(changed(entry, line, f'{line}\n        overrides: "{override}"'))


def test_a_file_of_many_keys_is_refused_quickly(entry: Entry) -> None:
    keys = "".join(f"k{index}: x\n" for index in range(20_000))
    assert "unknown key" in refusal(codec.dumps(entry) + keys)


def test_an_expanded_tensor_larger_than_any_memory_is_refused(entry: Entry) -> None:
    huge = changed(entry, "{N: 2}", f"{{N: {1 << 45}}}").replace(
        "dtype: float32", "dtype: float32\n        layout: {expand: [0]}"
    )
    assert "dy has 35184372088832 elements, more than" in refusal(huge)
    wide = changed(entry, "{N: 2}", "{N: 1000}").replace(
        "dtype: float32", "dtype: float32\n        layout: {order: [0], reach: 40}"
    )
    assert "the layout of dy spans" in refusal(wide)


@pytest.mark.parametrize("end", ["}", "]", "\n\t\x07", '"\\ud800'])
def test_a_large_text_with_an_error_at_its_end_costs_a_bounded_number_of_values(entry: Entry, end: str) -> None:
    text = codec.dumps(entry) + "x: [" + "a," * 480_000 + end
    assert len(text) < codec.LARGEST_ENTRY and "more than 65536 values" in refusal(text)


def test_reading_executes_nothing(entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("something was executed")

    for name in ("exec", "eval", "__import__"):
        monkeypatch.setattr(f"builtins.{name}", refuse)
    before = set(sys.modules)
    read = codec.loads(codec.dumps(entry).encode())
    assert set(sys.modules) == before
    monkeypatch.undo()
    assert read == entry


@pytest.mark.parametrize("oracle", sorted(SYMPTOMS))
def test_findings_of_every_oracle_are_written(case: Case, oracle: str) -> None:
    for symptom in SYMPTOMS[oracle]:
        entry = Entry(case, Finding(oracle, ("a buffer of the launcher", "x/y"), symptom, "m"))
        assert codec.loads(codec.dumps(entry).encode()) == entry
        assert entry.name.startswith("a_buffer_of_the_launcher+x_y-")


def test_the_changed_argument_of_a_finding_is_written(case: Case) -> None:
    entry = Entry(case, Finding("scaling", ("dx",), "scale", "m", change=("dy", 0.125)))
    assert codec.loads(codec.dumps(entry).encode()) == entry
    for wrong in ("[dy]", "[dy, often]", "dy"):
        refusal(codec.dumps(entry).replace("[dy, 0.125]", wrong))


def test_a_file_name_holds_no_path_and_stays_short(case: Case) -> None:
    name = Entry(case, Finding("bounds", ("../../etc", *(f"out{i}" for i in range(99))), "stray-write", "m")).name
    assert "/" not in name and ".." not in name and len(name) < 140
