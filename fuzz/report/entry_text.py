"""Writes a finding on one screen: the case, got and wanted, bits, ulps, where it was seen, how to repeat it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fuzz.escaping import printable, shell_quote
from fuzz.model.case import Argument, Call, Case
from fuzz.model.dtypes import decimal
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.entry import Entry
from fuzz.model.finding import ENCLOSURE, INTERVALS, Element, Finding, Verdict
from fuzz.model.grade import Grade, describe_eager
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.model.oracle_specs import ACCURACY, PARITY
from fuzz.model.provenance import Provenance
from fuzz.model.recipes import Exact, Patched, Recipe

SIDES = {"kernel": "the kernel", "reference": "the reference"}
RESULTS = (ACCURACY.name, PARITY.name)
"""Oracles whose findings are wrong results, which are the consequence of what other oracles find."""
MAX_VALUES = 12
"""Values that are listed one by one."""
MAX_LISTED, MAX_MADE = 64, 1 << 22
"""Elements of a tensor of a typical case whose values are all listed, and of one whose first values are worth making
the whole."""
DescribeValues = Callable[[Argument, Call], str]
"""(tensor, call) -> its values as text."""


def replay_command(path: object, target: str = "") -> str:
    """The shell's command that replays an entry; `target` is the file of its target, where it is not beside it."""
    return f"fuzz replay {shell_quote(str(path))}" + (f" --target {shell_quote(target)}" if target else "")


def format_entry(entry: Entry, path: str, command: str, describe_values: DescribeValues | None = None) -> str:
    """The whole entry as text of at most about 40 lines; `describe_values` is `values_text` where none is given."""
    finding = entry.finding
    head = f"{entry.case.target}" + (f" (planted: {entry.planted})" if entry.planted else "")
    title = f"{head}   {headline(finding, entry.also)}" if finding else f"{head}   a seed case"
    # None is an empty line.
    lines: list[str | None] = [None, *case_lines(entry.case, describe_values), None]
    if finding:
        lines += [*element_lines(finding), *verdict_lines(finding, entry.provenance), *entry.provenance.diagnosis]
        lines += severity_lines(entry.grade) if entry.grade else []
        lines += [*(f"also: {text}" for text in entry.also), None]
    status = f"status   {entry.status}" + (f": {entry.why}" if entry.why else "")
    lines += [*provenance_lines(entry.provenance), status, f"saved    {path}", f"repeat   {command}"]
    return "\n".join([printable(title), *("" if line is None else printable(f"  {line}") for line in lines)])


def headline(finding: Finding, also: Sequence[str] = ()) -> str:
    """Oracle and symptom, then what was seen; before them which results are wrong for that, by the other findings."""
    others = [other for other in map(Finding.parse_summary, also) if other]
    wrong = {name: None for other in others if other.oracle in RESULTS for name in other.outputs}
    consequence = f"{', '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} wrong: " if wrong else ""
    text = f"{finding.oracle}/{finding.symptom}: {finding.message}"
    return text if finding.oracle in RESULTS else consequence + text


def case_lines(case: Case, describe_values: DescribeValues | None = None) -> Iterator[str]:
    """The lines of a case, with what `describe_values` says of each tensor, `values_text` where none is given."""
    for index, call in enumerate(case.calls):
        prefix = f"call {index + 1} of {len(case.calls)}: " if len(case.calls) > 1 else ""
        options = [f"{name}={value}" for name, value in call.options.items()]
        yield prefix + " ".join([*(f"{name}={size}" for name, size in call.dims.items()), *options])
        if call.launch:
            yield f"  launched with {', '.join(f'{name}={value}' for name, value in call.launch.as_dict().items())}"
        width = max(map(len, call.tensors), default=0)
        for name, value in call.tensors.items():
            shape = "x".join(value.shape) or "scalar"
            values = (describe_values or values_text)(value, call)
            yield f"  {name:<{width}}  {value.dtype} {shape}{layout_text(value.layout)} = {values}"
    if case.split:
        split = case.split
        rows = f"{split.start}..{split.start + split.length - 1}" if split.length > 1 else str(split.start)
        yield f"split: rows {rows} again, with {split.before} other rows before and {split.after} after"


def layout_text(layout: Layout) -> str:
    if layout == CONTIGUOUS:
        return ""
    parts = [f"{name}={number}" for name, number in vars(layout).items() if number != getattr(CONTIGUOUS, name)]
    return f" {layout.kind} ({', '.join(parts)})"


def values_text(value: Argument, call: Call, most: int = MAX_VALUES) -> str:
    """A recipe, or the values themselves, at most so many."""
    if isinstance(value.values, Patched):
        return value.values.recipe.text() + " with overrides"
    if not isinstance(value.values, Exact):
        return value.values.text()
    kind, words = named_dtype(value.dtype), value.values.bits
    values = ", ".join(decimal(word, kind) for word in words[:most])
    if len(set(words)) == 1 and len(words) > 1:
        return f"all {decimal(words[0], kind)}"
    return f"[{values}{', ..' if len(words) > most else ''}]"


def element_lines(finding: Finding) -> Iterator[str]:
    for element in finding.elements:
        yield element_text(element)
    if finding.compared:
        yield f"{finding.disagreeing} of {finding.compared} elements disagree"
    if finding.call:
        yield f"shown by call {finding.call + 1}"


def verdict_lines(finding: Finding, provenance: Provenance) -> Iterator[str]:
    """What arbitrary precision says, where there is an exact value."""
    side = SIDES.get(provenance.adjudication.name)
    if side and finding.elements and finding.elements[0].exact:
        first = finding.elements[0]
        yield f"{side} is wrong, {_evidence(provenance.adjudication)}:"
        yield f"  {first.output}{list(first.index)} is exactly {first.exact}"


def severity_lines(grade: Grade) -> Iterator[str]:
    """The severity with its reason, eager PyTorch's error, and the typical case."""
    yield f"severity {grade.severity}: {describe_inputs(grade)}" + (f"; {grade.reason}" if grade.reason else "")
    if grade.eager_ratio is not None:
        yield describe_eager(grade.eager_ratio, grade.eager_dtype)
    if grade.typical:
        yield "typical case:"
        yield from (f"  {line}" for line in case_lines(grade.typical.case))
        yield from (f"  {element_text(element)}" for element in grade.typical.finding.elements[:1])


def describe_inputs(grade: Grade) -> str:
    """Which inputs show a finding, and how many of those that were drawn."""
    typical = grade.typical
    if typical is None:
        return f"no drawn input shows it; its own is {grade.input_class}"
    call, rate = typical.case.last, typical.rate
    if not rate.disagreements:
        return f"its own input is {grade.input_class}; none of {rate.runs} drawn like it shows it"
    recipes = {
        (value.values.name, *value.values.params)
        for value in call.tensors.values()
        if isinstance(value.values, Recipe) and value.is_float
    }
    values = "randn" if recipes == {("normal", ("exponent", 0))} else grade.input_class
    dims = " ".join(f"{name}={size}" for name, size in call.dims.items())
    layouts = [f"{name} {value.layout.kind}" for name, value in call.tensors.items() if value.layout != CONTIGUOUS]
    where = f" with {', '.join(layouts)}" if layouts else ""
    share = 100 * rate.disagreements / rate.runs
    return f"{share:.0f} % of {values} inputs of {dims}{where} show it ({rate.disagreements} of {rate.runs} drawn)"


def _evidence(verdict: Verdict) -> str:
    """How the exact value is known: interval arithmetic encloses it, or mpmath gives it at two precisions."""
    if verdict.proof == ENCLOSURE:
        return f"certified by interval arithmetic at {verdict.digits or ''} digits"
    if verdict.proof == INTERVALS:
        return "certified by interval arithmetic in float64"
    precisions = f" at {verdict.digits // 2} and {verdict.digits} digits" if verdict.digits else ""
    return f"confirmed by mpmath{precisions}"


def element_text(element: Element) -> str:
    text = f"{element.output}{list(element.index)}  got {element.got}"
    if element.got_word:
        text += f" ({element.got_word})"
    if element.want:
        text += f"  want {element.want}"
    if element.ulps:
        text += f"  {ulps_text(element.ulps, 'infinitely many')} ulp off"
    return text + (f", {element.bound} allowed" if element.bound else "")


def ulps_text(text: str, infinite: str) -> str:
    """An error of a finding's element, as short as it is read, `infinite` where it has no number."""
    try:
        number = float(text)
    except ValueError:
        return text
    return f"{number:.3g}" if math.isfinite(number) else infinite


def provenance_lines(provenance: Provenance) -> Iterator[str]:
    if seen := provenance.fields():
        where = ", ".join(f"{name} {seen[name]}" for name in ("backend", "device", "torch", "triton") if name in seen)
        rate = f"{provenance.rate.describe()} runs" if provenance.rate else ""
        parts = [where, rate, f"verdict {provenance.adjudication.text}"]
        yield f"seen     {'; '.join(filter(None, parts))}"
        if others := other_backends(provenance):
            yield f"others   {others}"
        if provenance.cut_off:
            yield f"cut off  {provenance.cut_off}: no time was left for it; the next run, or fuzz shrink, goes on"


def other_backends(provenance: Provenance) -> str:
    """Whether the least case shows the finding on other backends."""
    said = {"agrees": "shows it too", "disagrees": "does not show it"}
    return "; ".join(f"{name} {said.get(answer, answer)}" for name, answer in provenance.cross_checks.items())


def script_command(path: object, target: str = "") -> str:
    """The shell's command that prints the program of a typical case, with every value exactly."""
    given = f" --target {shell_quote(target)}" if target else ""
    return f"fuzz show --script --typical {shell_quote(str(path))}{given}"


def typical_values_text(value: Argument, call: Call) -> str:
    """All values of a small tensor; the first ones of a large one, and what a torch expression or words say of all."""
    shape = value.stored_shape(call.dims)
    count = math.prod(shape)
    made = describe_recipe(value.values, shape) if isinstance(value.values, Recipe) else ""
    if count > MAX_MADE:
        return made or values_text(value, call)
    words = tuple(int(word) for word in value.bits(call.dims).reshape(-1))
    listed = replace(value, values=Exact(words, value.dtype))
    if count <= MAX_LISTED:
        return values_text(listed, call, MAX_LISTED)
    return values_text(listed, call) + (f", {made}" if made else "")


def describe_recipe(recipe: Recipe, shape: tuple[int, ...]) -> str:
    """How torch makes values like a recipe's, or in words what they are."""
    params = dict(recipe.params)
    if recipe.kind.torch:
        made = recipe.kind.torch.format(shape=", ".join(map(str, shape)), **params)
        return f"like {made.removesuffix(' * 2.0**0')}"
    numbers = " ".join(f"{name}={number}" for name, number in params.items())
    return recipe.kind.meaning + (f" ({numbers})" if numbers else "")
