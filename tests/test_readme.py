"""What the README shows is what happens: its target runs, its planted mistake is found, its screen is the screen."""

from __future__ import annotations

import fnmatch
import inspect
import re
from pathlib import Path

import pytest
from commands import fuzz
from programs import run_program

from fuzz.corpus import codec
from fuzz.target.spec import declare

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's repository as the README describes it."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "my_kernels").mkdir()
    target, test = BLOCKS
    (folder / "my_kernels" / "fuzz_softmax.py").write_text(target)
    (folder / "test_kernels.py").write_text(test.replace("cases=200", "cases=5, backend='cpu'"))
    return folder


@pytest.fixture
def in_repository(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)


def test_the_target_has_at_most_thirty_lines() -> None:
    assert len(BLOCKS[0].splitlines()) <= 30


@pytest.mark.usefixtures("in_repository")
def test_the_target_runs_and_nothing_is_found() -> None:
    done = fuzz("run", "my_kernels/fuzz_softmax.py", "--cases", 20, "--backend", "cpu")
    assert done.code == 0, done.err


@pytest.mark.usefixtures("in_repository", "no_cross_checks")
def test_its_planted_mistake_is_found() -> None:
    planted = ("--planted", "no_max", "--cases", 40, "--max-findings", 1, "--backend", "cpu")
    done = fuzz("run", "my_kernels/fuzz_softmax.py", *planted)
    assert done.code == 1, done.err
    assert "accuracy/nonfinite: out: 1 of 1 elements wrong" in done.err


def test_its_test_function_passes(repository: Path) -> None:
    done = run_program("-m", "pytest", "-q", "-pno:schemathesis", "test_kernels.py", cwd=repository)
    assert done.returncode == 0, done.stdout


def test_the_screen_is_the_one_that_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions aside, which are those of the machine that the README was written on."""
    monkeypatch.chdir(tmp_path)
    found = ("--planted", "erf_saturates", "--max-findings", "1", "--corpus", "found")
    assert fuzz("run", "gelu_bw", *found, "--backend", "cpu", "--cases", "40").code == 1
    (entry,) = (tmp_path / "found").rglob("*.yaml")
    shown = fuzz("show", entry.relative_to(tmp_path)).out
    lines = [line for line in shown.splitlines() if not line.startswith("  seen ")]
    assert [line for line in lines if line not in README] == []


@pytest.mark.parametrize("text", sorted(set(re.findall(r"\]\(([\w/.-]+)\)", README))))
def test_its_links_lead_somewhere(text: str) -> None:
    assert (ROOT / text).exists()


def test_the_entry_in_the_corpus_format_is_an_entry() -> None:
    text = (ROOT / "docs" / "corpus-format.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert codec.dumps(codec.loads(example.encode())) == example


@pytest.mark.parametrize("document", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_links_between_documents_lead_somewhere(document: str) -> None:
    path = ROOT / "docs" / document
    for text in re.findall(r"\]\(([\w/.-]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / text).exists(), text


DOCUMENTS = ("README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
FOREIGN = ("my_kernels/", "ops/cross_entropy.py")
"""A user's own files, and those of a published library."""


@pytest.fixture(scope="module")
def files() -> list[str]:
    """The paths of the repository, from its root."""
    folders = ("fuzz", "tests", "targets", "benchmarks", "docs", "corpus", "configs")
    return [f"/{path.relative_to(ROOT)}" for folder in folders for path in (ROOT / folder).rglob("*.*")]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_files_that_a_document_names_are_there(document: str, files: list[str]) -> None:
    """A path may begin at any folder; words in capitals stand for what a reader puts there."""
    text = (ROOT / document).read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w.*/-]+/[\w.*-]+\.(?:py|c|md|yaml|toml|html|js))[`:]", text))
    patterns = {path: "*/" + re.sub(r"\b[A-Z]{2,}\b", "*", path) for path in named if not path.startswith(FOREIGN)}
    assert [path for path, pattern in sorted(patterns.items()) if not fnmatch.filter(files, pattern)] == []


def test_every_keyword_of_a_target_is_documented() -> None:
    text = (ROOT / "docs" / "targets.md").read_text(encoding="utf-8")
    keywords = [name for name, kind in inspect.signature(declare).parameters.items() if kind.kind == kind.KEYWORD_ONLY]
    assert [name for name in keywords if f"`{name}`" not in text and name != "cls"] == []


@pytest.mark.parametrize(
    "command", ["run", "replay", "report", "serve", "shrink", "show", "mark", "new", "list", "doctor"]
)
def test_every_command_and_option_is_documented(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    options = set(re.findall(r"--[a-z-]+", fuzz(command, "--help").out)) - {"--help"}
    assert f"fuzz {command}" in text
    assert [option for option in sorted(options) if option not in text] == []
