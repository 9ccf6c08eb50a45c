"""Collects target files and corpus entries as tests, where pytest is run with ``--fuzz-cases N``.

A target in ``fuzz_*.py``, or in a file named on the command line, becomes a test that fuzzes N of its cases. An entry
beside such a file, in a folder named ``corpus``, or in ``--fuzz-corpus`` becomes a test that replays it. With N = 0
entries are replayed and nothing is fuzzed. Without the option nothing is collected, and nothing more is imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FIRST_LINE = b"format: fuzz-case/"
COLLECTED = pytest.StashKey[set[Path]]()
"""Entries that are collected already, so that one beside a target file and in a collected folder is one test."""

TARGETS = pytest.StashKey[dict[str, str]]()
"""What to load each collected target by, by its name: entries in a corpus elsewhere name no more than that."""


class DisagreementError(Exception):
    """Holds the screen that is shown in place of a traceback."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fuzz", "differential fuzzing of Triton kernels")
    group.addoption("--fuzz-cases", type=_count, metavar="N", help="fuzz N cases a target; 0 only replays entries")
    group.addoption("--fuzz-corpus", type=Path, metavar="DIR", help="replay the entries in DIR and save findings there")
    group.addoption("--fuzz-backend", default="auto", metavar="NAME", help="auto, cpu or cuda")
    group.addoption("--fuzz-fail-on", default="medium", metavar="SEVERITY", help="low, medium or high")
    group.addoption("--fuzz-seed", type=int, default=0, metavar="N", help="the seed of the cases")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not a number of cases")
    return int(text)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COLLECTED], config.stash[TARGETS] = set(), {}
    if "FUZZ_CACHE" in os.environ:
        from fuzz.cache import use_cache_folder

        use_cache_folder()
    severity, folder = config.getoption("--fuzz-fail-on"), config.getoption("--fuzz-corpus")
    if config.getoption("--fuzz-cases") is not None:
        from fuzz.model.grade import SEVERITIES

        if severity not in SEVERITIES:
            raise pytest.UsageError(f"--fuzz-fail-on is one of {', '.join(SEVERITIES)}, not {severity!r}")
    if folder is None:
        return
    if config.getoption("--fuzz-cases") is None:
        raise pytest.UsageError("--fuzz-corpus needs --fuzz-cases N; N = 0 only replays entries")
    if not folder.is_dir():
        raise pytest.UsageError(f"--fuzz-corpus: {folder} is not a folder")
    config.args.append(str(folder))


def pytest_unconfigure(config: pytest.Config) -> None:
    if "FUZZ_CACHE" in os.environ and not hasattr(config, "workerinput"):
        from fuzz.cache import prune_cache

        prune_cache()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if parent.config.getoption("--fuzz-cases") is None:
        return None
    if file_path.suffix == ".yaml" and _is_entry(file_path, parent):
        return EntryFile.from_parent(parent, path=file_path)
    if file_path.suffix == ".py" and _is_target_file(file_path, parent):
        return TargetFile.from_parent(parent, path=file_path)
    return None


def _is_target_file(path: Path, parent: pytest.Collector) -> bool:
    chosen = path.name.startswith("fuzz_") or parent.session.isinitpath(path)
    if not chosen:
        return False
    from fuzz.target.loader import declares_targets

    return declares_targets(_read_start(path, 1 << 22).decode(errors="replace"))


def _is_entry(path: Path, parent: pytest.Collector) -> bool:
    folder = parent.config.getoption("--fuzz-corpus")
    placed = "corpus" in path.parts or (folder is not None and path.is_relative_to(folder.resolve()))
    if not placed and not parent.session.isinitpath(path):
        return False
    return _read_start(path, len(FIRST_LINE)) == FIRST_LINE


def _read_start(path: Path, limit: int) -> bytes:
    """The beginning of a file; empty where it cannot be read or is a pipe or a device, which holds no test."""
    from fuzz.files import read_file

    try:
        return read_file(path, limit)
    except OSError:
        return b""


class TargetFile(pytest.File):
    """A file that declares targets: one test for each that fuzzes it, and one for each entry beside the file."""

    def collect(self) -> Iterator[pytest.Item]:
        from fuzz import corpus
        from fuzz.errors import FuzzError
        from fuzz.run.setup import start_worker_server, try_loading
        from fuzz.target.loader import load_module, targets_in

        cases, path = self.config.getoption("--fuzz-cases"), self.path.resolve()
        try:
            start_worker_server()
            try_loading(path)
            targets = targets_in(load_module(path))
        except FuzzError as error:
            raise self.CollectError(str(error)) from None
        for name, target in targets.items():
            self.config.stash[TARGETS].setdefault(name, f"{self.path}:{name}")
            folder = self.path.parent / "corpus" / name
            for path in _drop_collected(self.config, corpus.entry_files([folder]) if folder.is_dir() else ()):
                yield ReplayItem.from_parent(self, name=f"{name}/{path.name}", entry=path, target=f"{self.path}:{name}")
            if cases:
                yield FuzzItem.from_parent(self, name=name, target=target, cases=cases)


class EntryFile(pytest.File):
    """One entry of a corpus: one test."""

    def collect(self) -> Iterator[pytest.Item]:
        for path in _drop_collected(self.config, [self.path]):
            yield ReplayItem.from_parent(self, name="replay", entry=path, target="")


def _drop_collected(config: pytest.Config, paths: Any) -> Iterator[Path]:
    for path in paths:
        if path.resolve() not in config.stash[COLLECTED]:
            config.stash[COLLECTED].add(path.resolve())
            yield path


class _Item(pytest.Item):
    """A test whose failure is a screen, not a traceback."""

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        from fuzz.errors import FuzzError

        if isinstance(excinfo.value, DisagreementError | FuzzError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


class FuzzItem(_Item):
    """Some cases of one target."""

    def __init__(self, *, target: Any, cases: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.target, self.cases = target, cases

    def runtest(self) -> None:
        from fuzz.api import fuzz_target, qualified_name
        from fuzz.run.options import RunOptions

        option = self.config.getoption
        backend, seed, corpus = option("--fuzz-backend"), option("--fuzz-seed"), option("--fuzz-corpus")
        options = RunOptions(
            qualified_name(self.target), backend=backend, seed=seed, cases=self.cases, corpus=corpus,
            fail_on=option("--fuzz-fail-on"),
        )  # fmt: skip
        if screens := list(fuzz_target(self.target, options)):
            raise DisagreementError("\n\n".join(screens))


class ReplayItem(_Item):
    """One entry, in both directions: a fixed one must agree; an open one must disagree, which is expected to fail.

    It is skipped where it was seen on another backend, and agrees on this one.
    """

    def __init__(self, *, entry: Path, target: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.entry, self.target = entry, target

    def runtest(self) -> None:
        from fuzz.api import format_replayed_entry
        from fuzz.run.replay import SkippedEntry, replay_entries

        target = self.target or self._collected_target()
        for result in replay_entries([self.entry], self.config.getoption("--fuzz-backend"), target):
            if isinstance(result, SkippedEntry):
                raise result.error
            if not result.passed:
                raise DisagreementError(format_replayed_entry(result))
            if result.undecided:
                pytest.skip(result.message)
            if result.reproduced:
                pytest.xfail(result.message)

    def _collected_target(self) -> str:
        """The collected target of an entry beside whose corpus no file declares it; else nothing."""
        from fuzz import corpus
        from fuzz.target.loader import search_target

        name = corpus.read(self.entry).case.target
        is_beside = ".py:" in search_target(name, self.entry)
        return "" if is_beside else self.config.stash[TARGETS].get(name, "")
