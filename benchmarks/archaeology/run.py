"""Runs what the plan asks for, several processes at a time; what is done stays in the folder and is not done again."""

from __future__ import annotations

import json
import os
import queue
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from benchmarks.archaeology.plan import Period
from benchmarks.archaeology.processes import run_forked
from benchmarks.archaeology.replay import AGREES, DISAGREES
from benchmarks.releases import ROOT, install, json_of
from fuzz import corpus

GRADING = 60
"""Seconds for the severity of a finding that its run had no time to grade."""
EXTRA = 90
"""Seconds after its budget in which a process may still end by itself."""
SEARCHES = "runs"
"""The folder of what searches found."""
CASES = 24
"""Refused cases after which a release is taken for one that refuses them all."""
Found = dict[str, Any]


class OutOfTime(Exception):
    """The time in which work may begin is over."""


class Failed(Exception):
    """A process could not do its work; what needs it is left."""


@dataclass
class Workshop:
    """The folder with all results, and the processes that may run at once.

    A search ends after `cases` or `seconds`, whichever come first; 0 is no limit. `until` is by time.monotonic.
    """

    folder: Path
    jobs: int
    seconds: float
    wheels: Path | None = None
    until: float = float("inf")
    cases: int = 0
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
        if time.monotonic() > self.until:
            raise OutOfTime
        cpus = self.slots.get()
        try:
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

    def time_limit(self, seconds: float) -> float | None:
        """Seconds after which a process with a budget is ended; None where searches have none."""
        return seconds + EXTRA if self.seconds else None

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
            with self.slot() as cpus:
                folder = self.install(release)
                arguments = (str(targets), str(folder))
                code, output, errors = run_forked(folder, "benchmarks.archaeology.probe", *arguments, cpus=cpus)
            lines = [json.loads(line) for line in output.splitlines()]
            return {"error": f"{release}: {errors.strip()[-300:]}"} if code else {"lines": lines}

        return self.kept(f"probes/{release}.json", make)

    def search(self, period: Period, text: str, newer: Period | None = None) -> Found:
        """What a run of a target finds in a period's last release; the findings' paths are those in the folder.

        What was found in the `newer` period and shows here as well is known to the run, which spends no time on it.
        """
        name = search_name(period, text)

        def make() -> Found:
            entries = self.folder / name
            shutil.rmtree(entries, ignore_errors=True)
            if newer is not None:
                self.copy_known(self.folder / search_name(newer, text), entries, period.last, text)
            with self.slot() as cpus:
                arguments = (text, str(entries), f"{self.seconds:g}", str(self.cases))
                module, limit = "benchmarks.archaeology.search", self.time_limit(self.seconds)
                ran = json_of(run_forked(self.install(period.last), module, *arguments, timeout=limit, cpus=cpus))
            if "error" not in ran and ran["cases"] == ran["rejected"] < CASES:
                ran["error"] = f"the time ended after {ran['cases']} cases, which were all refused"
            for one in ran["findings"]:
                one["path"] = str(Path(one["path"]).resolve().relative_to(self.folder.resolve()))
            return ran | {"release": period.last}

        return self.kept(f"{name}.json", make)

    def copy_known(self, known: Path, entries: Path, release: str, text: str) -> None:
        """Copies the entries of another search that disagree in a release as well."""
        saved = [{"path": str(path.relative_to(self.folder))} for path in sorted(known.rglob("*.yaml"))]
        for path, now in self.replayed(release, text, saved).items():
            if now["shows"] == DISAGREES:
                copy = entries / (self.folder / path).relative_to(known)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self.folder / path, copy)

    def follow(self, text: str, chain: Sequence[Sequence[Period]]) -> list[Found]:
        """Takes what was found in the oldest period of a chain to the next, and what shows there to the one after it.

        A chain holds pairs of neighbouring periods, the oldest first. Raises Failed where the search failed.
        """
        period = chain[0][0]

        def make() -> Found:
            ran, steps = self.search(period, text), list[Found]()
            if "error" in ran:
                return {"error": ran["error"]}
            alive = [one | {"found_in": ran["release"]} for one in ran["findings"] if one["seen"] == "new"]
            for old, new in chain:
                steps.append(self.step(text, old, new, alive))
                alive = steps[-1]["still"]
            return {"steps": steps}

        made = self.kept(steps_name(period, text), make)
        if "error" in made:
            raise Failed(made["error"])
        return list(made["steps"])

    def step(self, text: str, old: Period, new: Period, findings: list[Found]) -> Found:
        """What becomes of findings from one period to the next.

        `repaired` agree on the newer and disagree on the older one, `still` disagree on the newer, `unconfirmed` agree
        on both, and `unexamined` could not be examined on the newer.
        """
        now = self.replayed(new.first, text, findings)
        gone = [one for one in findings if now[one["path"]]["shows"] == AGREES]
        before = self.replayed(old.last, text, gone)
        sure = [one for one in gone if before[one["path"]]["shows"] == DISAGREES]
        return {
            "target": name_of(text),
            "older": old.last,
            "newer": new.first,
            "repaired": [one | now[one["path"]] for one in sure],
            "unconfirmed": [one for one in gone if one not in sure],
            "still": [one for one in findings if now[one["path"]]["shows"] == DISAGREES],
            "unexamined": [
                one | now[one["path"]] for one in findings if now[one["path"]]["shows"] not in (AGREES, DISAGREES)
            ],
        }

    def replayed(self, release: str, text: str, findings: list[Found]) -> dict[str, Found]:
        """The lines of the module `replay` by the path in the folder."""
        if not findings:
            return {}
        paths = [str((self.folder / one["path"]).resolve()) for one in findings]
        with self.slot() as cpus:
            folder, limit = self.install(release), self.time_limit(30 * len(paths))
            module = "benchmarks.archaeology.replay"
            _, output, errors = run_forked(folder, module, text, *paths, timeout=limit, cpus=cpus)
        lines = {line["path"]: line for line in map(json.loads, output.splitlines())}
        lost = {"needs": [], "shows": f"not run: {errors.strip()[-300:]}"}
        return {
            one["path"]: {name: lines.get(path, lost)[name] for name in ("needs", "shows")}
            for one, path in zip(findings, paths, strict=True)
        }

    def finished(self, release: str, text: str, found: Found) -> Found:
        """What changes in a finding that its search had no time to shrink to the end or to grade; empty for others."""

        def make() -> Found:
            path = self.folder / found["path"]
            budget = ("--grade", "--seconds", str(GRADING), "--backend", "cpu", "--target", text)
            with self.slot() as cpus:
                arguments = ("shrink", str(path), *budget)
                run_forked(self.install(release), "fuzz", *arguments, timeout=self.time_limit(GRADING), cpus=cpus)
            needs = self.replayed(release, text, [found])[found["path"]]["needs"]
            return {"severity": corpus.read(path).severity, "needs": needs or found["needs"]}

        if found["severity"] is not None and not found["cut_off"]:
            return {}
        return self.kept(finish_name(found), make)


def name_of(text: str) -> str:
    """The name of a target that is loaded by a text."""
    return text.rpartition(":")[2] if ":" in text else Path(text).stem


def search_name(period: Period, text: str) -> str:
    """Where the search of a target on a period is kept, without `.json`."""
    return f"{SEARCHES}/{period.last}/{name_of(text)}"


def steps_name(period: Period, text: str) -> str:
    """Where it is kept what becomes of a target's findings in a period."""
    return f"steps/{period.last}/{name_of(text)}.json"


def finish_name(found: Found) -> str:
    """Where it is kept what a repaired finding is once it is shrunk and graded."""
    return f"finished/{found['path']}.json"


def relative(path: Path) -> Path:
    """A path as it is seen from the root of the project, where it is below it."""
    path = path.resolve()
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
