"""`fuzz report`: one file that holds everything and needs nothing, whatever stands in the entries."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fuzz import cli, corpus
from fuzz.campaign.store import Job
from fuzz.model.case import Argument, Call, Case
from fuzz.model.entry import Entry
from fuzz.model.finding import Element, Finding
from fuzz.model.grade import Grade, TypicalCase
from fuzz.model.provenance import Provenance
from fuzz.model.rate import Rate
from fuzz.model.recipes import Exact
from fuzz.web.entry_plots.client import PlotResult
from fuzz.web.pages.render import csp_hash, render_report
from fuzz.web.pages.views import EntryView, ReportContent

HOSTILE = """</textarea></script><script>alert(1)</script><img src=x onerror=alert(1)>'"&{{ 7 * 7 }}"""


class Reader(HTMLParser):
    """Collects tags and what they refer to."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attributes if name in ("src", "href", "action", "data")]
        self.handlers += [name for name, _ in attributes if name.startswith("on") or name == "style"]


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An entry of a planted bug."""
    values = {name: Exact(words, "float32") for name, words in (("dy", (0x3F800000,)), ("x", (0xC0800000,)))}
    case = Case("gelu_bw", (Call({"N": 1}, {name: Argument(("N",), "float32", one) for name, one in values.items()}),))
    shown = Element("dx", (0,), "0.0014", "0x3ab9d59c", "-0.0005", bound="1e-09", ulps="3.3e7")
    found = Finding("accuracy", ("dx",), "sign", "dx: 1 of 1 elements wrong", (shown,), disagreeing=1, compared=1)
    seen = {"backend": "cpu", "rate": "10/10", "diagnosis": "sign flipped for x < -3.6", "verdict": "kernel"}
    folder = tmp_path_factory.mktemp("corpus")
    return corpus.save_entry(folder, Entry(case, found, planted="erf_saturates", provenance=Provenance.parse(seen)))


@pytest.fixture(scope="module")
def text(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("out") / "report.html"
    assert cli.exit_code(["report", str(saved), "--out", str(out), "--backend", "cpu"]) == 0
    return out.read_text(encoding="utf-8")


def test_it_holds_numbers_case_diagnosis_plots_and_script(text: str) -> None:
    for part in ("sign flipped for x &lt; -3.6", "dx: error by element", "dx: ULP against x", "[-4.0]", "10/10"):
        assert part in text
    assert "def run_call(" in text and 'class="bound"' in text and 'class="mark here"' in text


def test_its_script_is_the_one_that_show_prints(text: str, saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.exit_code(["show", str(saved), "--script"]) == 0
    (area,) = re.findall(r"<textarea[^>]*>(.*?)</textarea>", text, re.DOTALL)
    assert html.unescape(area).strip() == capsys.readouterr().out.strip()


def test_it_refers_to_nothing_outside(text: str) -> None:
    found = read(text)
    assert [one for one in found.references if not one.startswith("#")] == []
    assert not {"link", "iframe", "img", "object", "embed", "base"} & set(found.tags)
    assert found.handlers == [] and "@import" not in text and "url(" not in text


def test_its_policy_allows_its_own_style_and_script_only(text: str) -> None:
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    style, script = (re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL) for tag in ("style", "script"))
    assert policy.startswith("default-src 'none'")
    for inside in (*style, *script):
        assert csp_hash(inside) in policy
    assert (len(style), len(script)) == (1, 1)


def test_it_adapts_to_darkness_and_phones(text: str) -> None:
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text


def test_names_from_entries_stay_text(entry: Entry) -> None:
    assert entry.finding is not None
    element = Element(HOSTILE, (0,), HOSTILE, HOSTILE, HOSTILE, HOSTILE, "x", HOSTILE)
    finding = replace(entry.finding, message=HOSTILE, outputs=(HOSTILE,), elements=(element,), source_line=HOSTILE)
    seen = Provenance.parse({"diagnosis": HOSTILE, "backend": HOSTILE, "verdict": "kernel", "digits": "50"})
    hostile = replace(entry, finding=finding, why=HOSTILE, planted=HOSTILE, also=(HOSTILE,), provenance=seen)
    hostile = replace(hostile, case=replace(entry.case, target=HOSTILE))
    study = PlotResult(why=HOSTILE, script=HOSTILE, no_script=HOSTILE)
    job = Job(1, HOSTILE, HOSTILE, HOSTILE, HOSTILE, 7, cases=1234, new=2, note=HOSTILE)
    made = render_report(
        ReportContent(HOSTILE, (), {HOSTILE: HOSTILE}, [job]), [EntryView(hostile, HOSTILE, HOSTILE, study)] * 2
    )
    assert "<h2>Targets</h2>" in made and "1\u2009234" in made and "seed 7" in made
    found = read(made)
    assert found.tags.count("script") == 1 and "img" not in found.tags and found.handlers == []
    assert "49" not in re.sub(r"sha256-\S+", "", made).replace("#", "") or "{{ 7 * 7 }}" in made


def coverage_of(text: str) -> dict[str, object]:
    """What `fuzz coverage --json` prints of a target with this text wherever one stands."""
    blocker = {"kind": text, "file": text, "line": 7, "elsewhere": [9], "what": text, "needs": text, "reason": ""}
    ran = {"run": 3, "all": 4}
    return {
        "version": 1, "target": text, "cases": 40, "rejected": 0, "lines": ran, "branches": ran, "masks": ran,
        "blockers": [blocker, {**blocker, "reason": text}],
    }  # fmt: skip


def test_what_was_never_tried_is_a_section_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    file, out = tmp_path / "coverage.json", tmp_path / "report.html"
    file.write_text(json.dumps({"version": 1, "targets": [coverage_of(HOSTILE), coverage_of("softmax")]}))
    assert cli.exit_code(["report", str(tmp_path / "corpus"), "--coverage", str(file), "--out", str(out)]) == 0
    made = out.read_text(encoding="utf-8")
    found = read(made)
    assert found.tags.count("details") == 2 and "<h2>Coverage</h2>" in made and "softmax:7" in made
    assert "75.0 %" in made and "left out:" in made and "also 9" in made
    assert found.tags.count("script") == 1 and "img" not in found.tags and found.handlers == []


WITH_TEXT = json.dumps({**coverage_of("t"), "lines": {"run": "1", "all": 2}})


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"targets": [3]}', '{"targets": 3}', WITH_TEXT])
def test_a_file_that_holds_no_coverage_is_one_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "corpus").mkdir()
    file = tmp_path / "coverage.json"
    file.write_text(text)
    assert cli.exit_code(["report", str(tmp_path / "corpus"), "--coverage", str(file)]) == 2
    assert "fuzz coverage --json" in (told := capsys.readouterr().err) and told.count("\n") == 1


def test_a_folder_without_entries_is_an_empty_report(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    (tmp_path / "corpus").mkdir()
    assert cli.exit_code(["report", str(tmp_path / "corpus"), "--out", str(out)]) == 0
    assert "No findings" in out.read_text(encoding="utf-8")


def test_entries_that_cannot_be_read_are_skipped_in_a_line_each(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "corpus", tmp_path / "report.html"
    folder.mkdir()
    (folder / "broken.yaml").write_text("format: none\n")
    arguments = ["report", str(folder), "--out", str(out), "--no-plots"]
    assert cli.exit_code(arguments) == 2 and not out.exists()
    (folder / "\u202ewhole.yaml").write_bytes(saved.read_bytes())
    (folder / "red\x1b.yaml").write_bytes(saved.read_bytes())
    capsys.readouterr()
    assert cli.exit_code(arguments) == 2
    text = out.read_text(encoding="utf-8")
    assert "1 of 1 elements wrong" in text and "\\u202ewhole.yaml" in text and "\u202e" not in text
    assert [line.split(":")[1] for line in capsys.readouterr().err.splitlines()] == [" skipped", " skipped"]


def test_an_entry_whose_target_is_missing_is_told_without_plots(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = corpus.read(saved)
    place = corpus.save_entry(tmp_path / "corpus", replace(entry, case=replace(entry.case, target="gone"), planted=""))
    out = tmp_path / "report.html"
    assert cli.exit_code(["report", str(place), "--out", str(out), "--backend", "cpu"]) == 0
    made = out.read_text(encoding="utf-8")
    assert "no target &#39;gone&#39; is built in" in made and "<svg" not in made


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.exit_code(["report", str(tmp_path), "--out", str(tmp_path / "no" / "report.html")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_page_tells_the_severity_and_the_typical_case(saved: Path) -> None:
    entry = corpus.read(saved)
    assert entry.finding is not None
    typical = TypicalCase(
        entry.case.with_call(0, replace(entry.case.last, dims={"N": 77})), entry.finding, Rate(37, 60)
    )
    graded = replace(entry, grade=Grade("medium", "special", typical, 1.31, "float32"))
    text = render_report(ReportContent("t"), [EntryView(graded, "my corpus/p.yaml", "")])
    for told in ("severity-medium", "62 % of special inputs of N=77", "torch in float32: 1.3 of the bound"):
        assert told in text
    assert "fuzz show --script --typical &#39;my corpus/p.yaml&#39;" in text
    assert "Severity" not in render_report(ReportContent("t"), [EntryView(entry, "p.yaml", "")])
