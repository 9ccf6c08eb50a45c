"""Views: an entry as the texts that a page shows. Plain strings, which the templates escape."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fuzz.model.entry import Entry
from fuzz.model.finding import Element, Finding, Verdict
from fuzz.model.rate import Rate
from fuzz.report.text import case_lines, verdict_lines
from fuzz.web.plots.charts import Plot, plots
from fuzz.web.plots.protocol import PlotResult

Pairs = tuple[tuple[str, str], ...]
VERSIONS = ("backend", "device", "torch", "triton", "python")


@dataclass(frozen=True)
class Row:
    """One element that the finding shows."""

    place: str
    got: str
    word: str
    want: str
    exact: str
    ulps: str
    bound: str


@dataclass(frozen=True)
class View:
    """One entry. `numbers` and `seen` are (name, text); `unseen` says why something is missing."""

    target: str
    planted: str
    status: str
    why: str
    oracle: str
    symptom: str
    output: str
    message: str
    verdict: str
    certified: str
    diagnosis: tuple[str, ...]
    rows: tuple[Row, ...]
    case: str
    size: str
    numbers: Pairs
    seen: Pairs
    also: tuple[str, ...]
    path: str
    repeat: str
    plots: tuple[Plot, ...] = ()
    script: str = ""
    unseen: tuple[str, ...] = field(default=())

    @property
    def title(self) -> str:
        return f"{self.oracle}/{self.symptom} {self.output}" if self.oracle else "seed case"


def view(entry: Entry, path: str, repeat: str, study: PlotResult | None = None) -> View:
    """What a page shows of an entry. `path` is shown, `repeat` is the command to copy."""
    finding, seen = entry.finding, entry.seen
    said = tuple(text for text in seen.get("diagnosis", "").split("; ") if text)
    drawn = tuple(plots(study.portrait)) if study else ()
    return View(
        entry.case.target, entry.planted, entry.status, entry.why,
        finding.oracle if finding else "", finding.symptom if finding else "", finding.output if finding else "",
        finding.message if finding else "a seed case", verdict_of(entry), "\n".join(certificate(entry)), said,
        tuple(map(row, finding.elements)) if finding else (), "\n".join(case_lines(entry.case)), size(entry),
        tuple(numbers(finding, seen)), tuple((name, seen[name]) for name in VERSIONS if name in seen), entry.also,
        path, repeat, drawn, study.script if study else "",
        tuple(unseen(study, drawn)) if study else (),
    )  # fmt: skip


def unseen(study: PlotResult, drawn: tuple[Plot, ...]) -> Iterator[str]:
    """Why there is no plot or no script."""
    if study.portrait.why:
        yield study.portrait.why
    elif not drawn:
        yield "nothing to draw: every output has exactly the reference's values."
    if study.why:
        yield f"no script: {study.why}"


def verdict_of(entry: Entry) -> str:
    """The verdict of an accuracy finding; other findings have none."""
    if entry.finding is None or entry.finding.as_accuracy.oracle != "accuracy":
        return ""
    return Verdict.recalled(entry.seen).name


def certificate(entry: Entry) -> list[str]:
    if entry.finding is None:
        return []
    told = [line.strip() for line in verdict_lines(entry.finding, entry.seen)]
    verdict = Verdict.recalled(entry.seen)
    accuracy = entry.finding.as_accuracy.oracle == "accuracy"
    if not told and verdict.name == "unadjudicated" and verdict.reason and accuracy:
        told = [f"unadjudicated: {verdict.reason}"]
    return told


def size(entry: Entry) -> str:
    """Dims of the last call, with the number of calls where there are several."""
    dims = " ".join(f"{name}={number}" for name, number in entry.case.last.dims.items())
    count = len(entry.case.calls)
    return f"{dims}, {count} calls" if count > 1 else dims


def row(element: Element) -> Row:
    place = f"{element.output}{list(element.index)}" if element.index else element.output
    return Row(place, element.got, element.got_word, element.want, element.exact, ulps(element.ulps), element.bound)


def ulps(text: str) -> str:
    try:
        number = float(text)
    except ValueError:
        return text
    return f"{number:.3g}" if math.isfinite(number) else "infinite"


def numbers(finding: Finding | None, seen: Mapping[str, str]) -> list[tuple[str, str]]:
    """What was counted: how much disagrees, by how much, how often, since when."""
    found: list[tuple[str, str]] = []
    if finding and finding.compared:
        found.append(("disagree", f"{finding.disagreeing} of {finding.compared} elements"))
    if finding and finding.ratio:
        found.append(("error / bound", f"{finding.ratio:.4g}"))
    if "rate" in seen:
        found.append(("shows in", f"{Rate.parse(seen['rate']).describe()} runs"))
    found += [(name.replace("_", " "), seen[name]) for name in ("seed", "first_case", "witnesses") if name in seen]
    if finding and finding.source_line:
        found.append(("source line", finding.source_line))
    if finding and finding.call:
        found.append(("shown by", f"call {finding.call + 1}"))
    return found
