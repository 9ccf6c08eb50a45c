"""Api: what a target's file uses. `target` turns a launcher into a Target that can be run from a plain function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuzz.target.spec import Launcher, declare
from fuzz.target.spec import Target as Record

if TYPE_CHECKING:
    from fuzz.cli.replay import Replayed
    from fuzz.run.options import RunOptions


class Target(Record):
    """A declared target. Calling it calls the launcher."""

    def run(
        self,
        cases: int = 200,
        seed: int = 0,
        seconds: float | None = None,
        backend: str = "auto",
        corpus: Path | None = None,
        planted: str | None = None,
    ) -> None:
        """Replays this target's saved entries, then fuzzes. AssertionError shows the first that disagrees.

        Entries are read from `corpus`, by default the folder of that name beside the target's file, and findings are
        saved there; those of a planted bug go to a temporary folder unless `corpus` is given. An open entry fails
        until it is marked: one that disagrees as a finding, one that agrees with the command that marks it fixed.
        """
        __tracebackhide__ = True
        from fuzz.run.options import RunOptions

        asked = RunOptions(named(self), planted, backend, "auto", seed, seconds, cases, corpus=corpus)
        for text in failures(self, asked):
            raise AssertionError("\n" + text)


def named(target: Record) -> str:
    """The text by which another process loads the same target."""
    return f"{target.path.resolve()}:{target.name}"


def failures(target: Record, asked: RunOptions) -> Iterator[str]:
    """What disagrees, each as one screen: saved entries, then findings of newly drawn cases."""
    for result in replays(target, asked):
        if result.reproduced and result.entry.status != "accepted" or not result.passed:
            yield replayed_text(result)
    yield from drawn(target, asked)


def replays(target: Record, asked: RunOptions) -> Iterator[Replayed]:
    """The target's saved entries, run again; those of a planted bug only where that bug is asked for."""
    from fuzz import corpus
    from fuzz.cli.replay import replayed

    if asked.planted and asked.corpus is None:
        return
    folder = corpus_of(target, asked) / target.name
    if folder.is_dir():
        paths = [path for path in corpus.entry_files([folder]) if corpus.read(path).planted == (asked.planted or "")]
        yield from replayed(paths, asked.backend, named(target))


def drawn(target: Record, asked: RunOptions) -> Iterator[str]:
    """The findings of a campaign, but for accepted ones. Ctrl-C ends it and goes on to the caller."""
    from fuzz import corpus
    from fuzz.cli.run import chosen_backend
    from fuzz.report.progress import Quiet
    from fuzz.run import environment
    from fuzz.run.fuzzer import Fuzzer
    from fuzz.target.loader import load_planted
    from fuzz.worker.process import preload

    preload("fuzz.oracles.preload")
    if asked.planted:
        load_planted(target, asked.planted)
    folder = corpus_of(target, asked)
    corpus.check_writable(folder)
    backend = chosen_backend(asked.backend)
    result = Fuzzer(asked, target, backend, folder, Quiet(), environment.versions()).run()
    if result.interrupted:
        raise KeyboardInterrupt
    for bug in result.bugs:
        entry = corpus.read(Path(bug.path))
        if entry.status != "accepted":
            yield screen_of(entry, Path(bug.path))


def corpus_of(target: Record, asked: RunOptions) -> Path:
    """The folder of a target's entries."""
    from fuzz.cli.run import default_folder

    return asked.corpus or default_folder(target, asked.planted)


def replayed_text(result: Replayed) -> str:
    """An entry that did not do what its status says, on one screen."""
    from fuzz.cli.replay import told

    return f"{result.path}: {told(result)}\n\n{screen_of(result.entry, result.path)}"


def screen_of(entry: Any, path: Path) -> str:
    from fuzz.report.text import screen

    return screen(entry, str(path), f"fuzz replay {path}")


def target(**declaration: Any) -> Callable[[Launcher], Target]:
    """Declare the decorated launcher as a target; docs/targets.md lists every keyword. Raises TargetError."""

    def decorate(launcher: Launcher) -> Target:
        made = declare(launcher, cls=Target, **declaration)
        assert isinstance(made, Target)
        return made

    return decorate
