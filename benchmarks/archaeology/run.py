"""Runs what the plan asks for, several processes at a time; what is done stays in the folder and is not done again."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from benchmarks.archaeology.plan import Period
from benchmarks.archaeology.processes import LATE, run_forked
from benchmarks.archaeology.replay import AGREES, DISAGREES
from benchmarks.releases import ROOT, install, json_of
from fuzz import corpus

GRADING = 40.0
"""Seconds in which a repaired finding is shrunk, explained and graded."""
REPLAYING = 25.0
"""Seconds after which a process begins no other case that it replays."""
EXTRA = 90
"""Seconds after its budget in which a process may still end by itself."""
LATEST = 45
"""Seconds after the last moment in which work may begin, when all of it is ended."""
MOST_REPAIRED = 3
"""Repaired cases with the same oracle, outputs and symptom that are finished."""
SHRINK, EXPLAIN = "shrunk", "explained"
"""The folders of what is finished, and how."""
SEARCHES = "runs"
"""The folder of what searches found."""
CASES = 24
"""Refused cases after which a release is taken for one that refuses them all."""
Found = dict[str, Any]
Chain = Sequence[Sequence[Period]]


class OutOfTime(Exception):
    """The time in which work may begin is over."""


class Failed(Exception):
    """A process could not do its work; what needs it is left."""


@dataclass
class Workshop:
    """The folder with all results, and the processes that may run at once.

    A search ends after `cases` or `seconds`, whichever come first; 0 is no limit. `until` is by time.monotonic. A
    repaired finding is shrunk, explained and graded in `grading` seconds.
    """

    folder: Path
    jobs: int
    seconds: float
    wheels: Path | None = None
    until: float = float("inf")
    cases: int = 0
    grading: float = GRADING
    slots: queue.Queue[tuple[int, ...]] = field(default_factory=queue.Queue, repr=False)
    locks: defaultdict[str, Lock] = field(default_factory=lambda: defaultdict(Lock), repr=False)
    failed: dict[str, Found] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        cpus = sorted(os.sched_getaffinity(0))
        for job in range(self.jobs):
            first = job * len(cpus) // self.jobs
            self.slots.put(tuple(cpus[first : max((job + 1) * len(cpus) // self.jobs, first + 1)]))

    def together(self, work: Callable[[Any], Any], things: Iterable[Any]) -> list[Any]:
        """The results of work on each thing, as many at a time as may run.

        None for what there was no time for, and a dict with the `error` for what failed.
        """

        def one(thing: Any) -> Any:
            try:
                return work(thing)
            except OutOfTime:
                return None
            except Failed as error:
                return {"error": str(error)}

        # More than may run: some wait for what others are about to do.
        with ThreadPoolExecutor(2 * self.jobs) as pool:
            return list(pool.map(one, things))

    @contextmanager
    def slot(self) -> Iterator[tuple[int, ...]]:
        """Processors, of no other job where there are enough. Raises OutOfTime where nothing may begin any more."""
        cpus = self.slots.get()
        try:
            if time.monotonic() > self.until:
                raise OutOfTime
            yield cpus
        finally:
            self.slots.put(cpus)

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """The JSON value in a file of the folder, made where it is not there yet.

        One with an error is not kept in the folder: the next command makes it again, and this one does not.
        """
        path = self.folder / name
        with self.locks[name]:
            if name in self.failed:
                return self.failed[name]
            if not path.is_file():
                value = make()
                if "error" in value:
                    self.failed[name] = value
                    return value
                path.parent.mkdir(parents=True, exist_ok=True)
                temporary = path.with_suffix(".part")
                temporary.write_text(json.dumps(value, indent=1), encoding="utf-8")
                temporary.rename(path)
        return json.loads(path.read_text(encoding="utf-8"))

    def run(self, release: str, module: str, *arguments: str, seconds: float | None) -> tuple[int, str, str]:
        """Runs a module with a release: (exit code, output, errors). `seconds` are its budget, None where it has none.

        Raises OutOfTime where it may not begin any more, or would not have ended long after that moment.
        """
        folder = self.install(release)
        with self.slot() as cpus:
            left = self.until + LATEST - time.monotonic()
            timeout = left if seconds is None else min(seconds + EXTRA, left)
            ran = run_forked(folder, module, *arguments, timeout=timeout if timeout < float("inf") else None, cpus=cpus)
        if ran[0] == LATE and timeout == left:
            raise OutOfTime
        return ran

    def done(self, name: str) -> Any:
        """The JSON value in a file of the folder, None where it is not there."""
        path = self.folder / name
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def install(self, release: str) -> Path:
        """The folder of a release, which is named as pip names it, `package==version`."""
        package, _, version = release.partition("==")
        return install(package, version, self.folder / "releases" / release, self.wheels).resolve()

    def probe(self, release: str, targets: Path) -> Found:
        """What a release has of the targets: the `lines` of the module `probe`, or the `error` of it."""

        def make() -> Found:
            arguments = (str(targets), str(self.install(release)))
            code, output, errors = self.run(release, "benchmarks.archaeology.probe", *arguments, seconds=None)
            lines = [json.loads(line) for line in output.splitlines()]
            return {"error": f"{release}: {errors.strip()[-300:]}"} if code else {"lines": lines}

        return self.kept(f"probes/{release}.json", make)

    def search(self, period: Period, text: str) -> Found:
        """What disagrees of a target in a period's last release; the findings' paths are those in the folder."""
        name = search_name(period, text)

        def make() -> Found:
            entries = self.folder / name
            shutil.rmtree(entries, ignore_errors=True)
            arguments = (text, str(entries), f"{self.seconds:g}", str(self.cases))
            module, budget = "benchmarks.archaeology.search", self.seconds or None
            ran = json_of(self.run(period.last, module, *arguments, seconds=budget))
            if "error" not in ran and ran["cases"] == ran["rejected"] < CASES:
                ran["error"] = f"the time ended after {ran['cases']} cases, which were all refused"
            for one in ran["findings"]:
                one["path"] = self.name_in_folder(Path(one["path"]))
            return ran | {"release": period.last}

        return self.kept(f"{name}.json", make)

    def name_in_folder(self, path: Path) -> str:
        """A path as it is seen from the folder."""
        return str(path.resolve().relative_to(self.folder.resolve()))

    def follow(self, text: str, chain: Chain, number: int) -> Found:
        """The step of that number in a chain: what was found in its oldest period goes from step to step as long as it
        shows.

        A chain holds pairs of neighbouring periods, the oldest first. Raises Failed where the search failed.
        """
        oldest, (old, new) = chain[0][0], chain[number]

        def make() -> Found:
            if number:
                return self.step(text, old, new, self.follow(text, chain, number - 1)["still"])
            ran = self.search(oldest, text)
            if "error" in ran:
                return {"error": ran["error"]}
            return self.step(text, old, new, [one | {"found_in": ran["release"]} for one in ran["findings"]])

        made: Found = self.kept(step_name(oldest, text, new), make)
        if "error" in made:
            raise Failed(made["error"])
        return made

    def step(self, text: str, old: Period, new: Period, findings: list[Found]) -> Found:
        """What becomes of findings from one period to the next.

        `repaired` agree on the newer and disagree on the older one, `similar` is the number of those that are like some
        of these, `still` disagree on the newer, `unconfirmed` agree on both, and `unexamined` could not be examined on
        the newer.
        """
        now = self.replayed(new.first, text, findings)
        gone = [one for one in findings if now[one["path"]]["shows"] == AGREES]
        before = self.replayed(old.last, text, gone)
        sure = [one for one in gone if before[one["path"]]["shows"] == DISAGREES]
        chosen = choose_repaired(sure)
        return {
            "target": name_of(text),
            "text": text,
            "older": old.last,
            "newer": new.first,
            "repaired": chosen,
            "similar": len(sure) - len(chosen),
            "unconfirmed": [one for one in gone if one not in sure],
            "still": [one for one in findings if now[one["path"]]["shows"] == DISAGREES],
            "unexamined": [
                one | now[one["path"]] for one in findings if now[one["path"]]["shows"] not in (AGREES, DISAGREES)
            ],
        }

    def replayed(self, release: str, text: str, findings: Sequence[Found]) -> dict[str, Found]:
        """The lines of the module `replay` by the path in the folder. No process takes long; each result is kept."""
        lines = dict[str, Found]()
        while left := [one["path"] for one in findings if one["path"] not in lines]:
            lines |= self.kept(replay_name(release, left), partial(self.replay_some, release, text, left))["lines"]
        return lines

    def replay_some(self, release: str, text: str, paths: Sequence[str]) -> Found:
        """The `lines` of the first of these paths, as many as there is time for."""
        full = [str((self.folder / path).resolve()) for path in paths]
        module, arguments = "benchmarks.archaeology.replay", (text, f"{REPLAYING:g}", *full)
        _, output, errors = self.run(release, module, *arguments, seconds=REPLAYING)
        lines = {line["path"]: line for line in map(json.loads, output.splitlines())}
        found = {path: lines[one] for path, one in zip(paths, full, strict=True) if one in lines}
        lost = {paths[0]: {"needs": [], "shows": f"not run: {errors.strip()[-300:]}"}}
        return {
            "lines": {path: {name: one[name] for name in ("needs", "shows")} for path, one in (found or lost).items()}
        }

    def finished(self, step: Found, found: Found) -> Found:
        """A repaired finding once it is shrunk, explained and graded on the older release of its step.

        The shrunk case counts where it disagrees there and agrees on the newer release. Shrinking may slip to another
        cause, which is not repaired: the unshrunk case is explained and graded then, with `slipped`. What the newer
        release shows after all, or the older one does not, has `repaired` False.
        """

        def make() -> Found:
            after = self.finish(SHRINK, step["older"], found)
            if self.is_repaired(step, found, after):
                return self.read_outcome(step, found, after) | {"repaired": True, "slipped": False}
            if not self.is_repaired(step, found, found["path"]):
                return {"repaired": False}
            after = self.finish(EXPLAIN, step["older"], found)
            return self.read_outcome(step, found, after) | {"repaired": True, "slipped": True}

        return self.kept(finish_name(found), make)

    def finish(self, how: str, release: str, found: Found) -> str:
        """The path of a copy of an entry that is shrunk, or explained, and graded."""
        unshrunk = self.folder / found["path"]
        folder = self.folder / how / found["path"].removesuffix(".yaml")
        grading = f"{self.grading:g}"

        def make() -> Found:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            path = str(shutil.copy(unshrunk, folder))
            if how == SHRINK:
                ran = self.run(release, *shrink_command(found, path, grading), seconds=self.grading)
            else:
                module = "benchmarks.archaeology.explain"
                ran = self.run(release, module, found["text"], grading, path, seconds=self.grading)
            (after,) = folder.glob("*.yaml")
            return {"path": self.name_in_folder(after), "errors": ran[2].strip()[-300:]}

        def grade() -> Found:
            ran = self.run(
                release, *shrink_command(found, str(self.folder / path), grading, "--grade"), seconds=self.grading
            )
            return {"errors": ran[2].strip()[-300:]}

        path = str(self.kept(f"{how}/{found['path']}.json", make)["path"])
        if how == SHRINK and corpus.read(self.folder / path).grade is None:
            # Shrinking took all the time.
            self.kept(f"grade/{found['path']}.json", grade)
        return path

    def is_repaired(self, step: Found, found: Found, path: str) -> bool:
        """Whether an entry disagrees on the older release of a step and agrees on the newer one."""
        one, text = {"path": path}, found["text"]
        return self.replayed(step["newer"], text, [one])[path]["shows"] == AGREES and (
            self.replayed(step["older"], text, [one])[path]["shows"] == DISAGREES
        )

    def read_outcome(self, step: Found, found: Found, path: str) -> Found:
        """What the entry of a repaired finding says, as far as the table needs it."""
        entry = corpus.read(self.folder / path)
        assert entry.finding is not None
        finding, seen = entry.finding, entry.provenance
        needs = self.replayed(step["older"], found["text"], [{"path": path}])[path]["needs"]
        return {
            "oracle": finding.oracle, "output": finding.output, "symptom": finding.symptom, "message": finding.message,
            "severity": entry.severity, "verdict": seen.adjudication.name, "cut_off": seen.cut_off,
            "elements": entry.case.elements(), "needs": needs, "finished": path,
        }  # fmt: skip


def sign_of(found: Found) -> tuple[str, str, str]:
    """Oracle, outputs and symptom."""
    return found["oracle"], found["output"], found["symptom"]


def choose_repaired(found: Sequence[Found]) -> list[Found]:
    """Of those with the same oracle, outputs and symptom so many: with different options first, the smallest first."""
    chosen = list[Found]()
    groups, seen = defaultdict[object, list[tuple[int, Found]]](list), Counter[str]()
    for one in sorted(found, key=lambda one: one["elements"]):
        options = repr((*sign_of(one), sorted(one["options"].items())))
        groups[sign_of(one)].append((seen[options], one))
        seen[options] += 1
    for group in groups.values():
        chosen += [one for _, one in sorted(group, key=lambda each: each[0])[:MOST_REPAIRED]]
    return chosen


def shrink_command(found: Found, path: str, seconds: str, *options: str) -> tuple[str, ...]:
    """The module `fuzz` with the arguments that shrink or grade an entry."""
    return "fuzz", "shrink", path, "--seconds", seconds, "--backend", "cpu", "--target", found["text"], *options


def name_of(text: str) -> str:
    """The name of a target that is loaded by a text."""
    return text.rpartition(":")[2] if ":" in text else Path(text).stem


def search_name(period: Period, text: str) -> str:
    """Where the search of a target on a period is kept, without `.json`."""
    return f"{SEARCHES}/{period.last}/{name_of(text)}"


def step_name(oldest: Period, text: str, newer: Period) -> str:
    """Where it is kept what becomes of a target's findings in a period once they reach a newer one."""
    return f"steps/{oldest.last}/{name_of(text)}/{newer.first}.json"


def finish_name(found: Found) -> str:
    """Where it is kept what a repaired finding is once it is shrunk and graded."""
    return f"finished/{found['path']}.json"


def replay_name(release: str, paths: Sequence[str]) -> str:
    """Where it is kept what some entries showed."""
    return f"replays/{release}/{hashlib.sha256(' '.join(paths).encode()).hexdigest()[:16]}.json"


def relative(path: Path) -> Path:
    """A path as it is seen from the root of the project, where it is below it."""
    path = path.resolve()
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
