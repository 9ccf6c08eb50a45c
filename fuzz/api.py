"""Provides what a target's file uses: `target` turns a launcher into a Target that can be run from a plain function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuzz.errors import TargetError
from fuzz.target import spec

if TYPE_CHECKING:
    from fuzz.model.case import Case
    from fuzz.model.entry import Entry
    from fuzz.run.options import RunOptions
    from fuzz.run.replay import ReplayedEntry


class Target(spec.Target):
    """A declared target. Calling it calls the launcher."""

    def run(
        self,
        cases: int = 200,
        seed: int = 0,
        seconds: float | None = None,
        backend: str = "auto",
        corpus: Path | str | None = None,
        planted: str | None = None,
        fail_on: str = "medium",
    ) -> None:
        """Replays this target's saved entries, then fuzzes. AssertionError shows the first that disagrees.

        Findings of a severity below `fail_on`, which is low, medium or high, are saved and do not fail.

        Entries are read from `corpus`, by default the folder of that name beside the target's file, and findings are
        saved there; those of a planted bug go to a temporary folder unless `corpus` is given. An open entry fails
        until it is marked: one that disagrees as a finding, if its severity counts, one that agrees with the command
        that marks it fixed.
        """
        __tracebackhide__ = True
        from fuzz.run.options import RunOptions

        folder = None if corpus is None else Path(corpus)
        options = RunOptions(
            qualified_name(self), planted, backend, "auto", seed, seconds, cases, corpus=folder, fail_on=fail_on
        )
        for text in find_failures(self, options):
            raise AssertionError("\n" + text)

    def check(self, /, **inputs: Any) -> None:
        """Examines one input as `run` does a drawn one. AssertionError shows what disagrees, whatever its severity.

        `inputs` are tensors, or numbers, by argument, and options; cotangents are ``grad_NAME``, by default ones.
        Dtypes and layouts are the tensors' own. TargetError where the launcher refuses the input, or where it does not
        fit the declaration.
        """
        __tracebackhide__ = True
        from fuzz.run.options import RunOptions
        from fuzz.target.inputs import given_case

        case = given_case(self, [inputs])
        options = RunOptions(qualified_name(self), cases=1, fail_on="low")
        for text in fuzz_target(self, options, (case,)):
            raise AssertionError("\n" + text)


def qualified_name(target: spec.Target) -> str:
    """The text by which another process loads the same target."""
    return f"{target.path.resolve()}:{target.name}"


def find_failures(target: spec.Target, options: RunOptions) -> Iterator[str]:
    """What disagrees and counts, each as one screen: saved entries, then findings of newly drawn cases."""
    from fuzz.model.grade import is_at_least

    for result in replay_saved(target, options):
        entry = result.entry
        counts = entry.status != "accepted" and is_at_least(entry.severity, options.threshold)
        if result.reproduced and counts or not result.passed:
            yield format_replayed_entry(result)
    yield from fuzz_target(target, options)


def replay_saved(target: spec.Target, options: RunOptions) -> Iterator[ReplayedEntry]:
    """Replays the target's saved entries; those of a planted bug only where the options name that bug."""
    from fuzz import corpus
    from fuzz.run.replay import SkippedEntry, replay_entries
    from fuzz.run.setup import findings_folder

    if options.planted and options.corpus is None:
        return
    folder = findings_folder(target, options.planted, options.corpus) / target.name
    if folder.is_dir():
        paths = [path for path in corpus.entry_files([folder]) if corpus.read(path).planted == (options.planted or "")]
        for result in replay_entries(paths, options.backend, qualified_name(target)):
            if isinstance(result, SkippedEntry):
                raise result.error
            yield result


def fuzz_target(target: spec.Target, options: RunOptions, inputs: tuple[Case, ...] = ()) -> Iterator[str]:
    """The screens of a run's findings that count; it begins with `inputs`. Ctrl-C ends it and goes on to the caller."""
    from fuzz import corpus
    from fuzz.run import environment
    from fuzz.run.fuzzer import Fuzzer
    from fuzz.run.setup import choose_backend, start_worker_server, writable_findings_folder
    from fuzz.run.watcher import Watcher
    from fuzz.target.loader import load_planted

    start_worker_server()
    if options.planted:
        load_planted(target, options.planted)
    folder = writable_findings_folder(target, options.planted, options.corpus)
    backend = choose_backend(options.backend)
    result = Fuzzer(options, target, backend, folder, Watcher(), environment.versions(), suspects=inputs).run()
    if result.interrupted:
        raise KeyboardInterrupt
    for bug in result.bugs:
        entry = corpus.read(Path(bug.path))
        if entry.status != "accepted" and bug.counts(options.threshold):
            yield format_saved_entry(entry, Path(bug.path), target)
    if result.counted_unconfirmed:
        yield f"{target.name}: cases disagreed, and the time ended before one was confirmed; give it more seconds"


def format_replayed_entry(result: ReplayedEntry) -> str:
    """An entry that did not do what its status says, on one screen."""
    return f"{result.path}: {result.message}\n\n{format_saved_entry(result.entry, result.path, result.target)}"


def format_saved_entry(entry: Entry, path: Path, target: spec.Target) -> str:
    from fuzz.report.entry_text import format_entry, replay_command
    from fuzz.target.loader import target_argument

    return format_entry(entry, str(path), replay_command(path, target_argument(target, path)))


def target(*misplaced: object, **declaration: Any) -> Callable[[spec.Launcher], Target]:
    """Declare the decorated launcher as a target; docs/targets.md lists every keyword. Raises TargetError."""
    if misplaced:
        what = f"stands without brackets on {getattr(misplaced[0], '__name__', '?')!r}"
        what = what if callable(misplaced[0]) else "takes arguments by name alone"
        raise TargetError(f"@target {what}: write @target(x=tensor(N), ..), with the arguments of the launcher")

    def decorate(launcher: spec.Launcher) -> Target:
        declared = spec.declare(launcher, Target, **declaration)
        assert isinstance(declared, Target)
        return declared

    return decorate
