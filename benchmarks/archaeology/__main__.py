"""Repaired bugs of published libraries: a folder of targets against every release of the library that they are for.

python -m benchmarks.archaeology --releases PACKAGE --targets FOLDER [--seconds N] [--cases N] [--jobs N]
    [--out FOLDER] [--pairs all|third] [--seed N] [--wheels FOLDER] [--stand-in PACKAGE] [--limit N] [--write FILE]

A finding in one release that agrees on the next release, and still disagrees on its own when it is run again, is a
repaired bug. Every result is kept in --out; the command goes on where it ended. A library whose package was renamed
takes --releases more than once.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from benchmarks.archaeology.plan import Pair, Period, chains, draw_third, neighbours, periods, searched, steps
from benchmarks.archaeology.processes import start_server
from benchmarks.archaeology.run import (
    SEARCHES,
    Failed,
    Found,
    Workshop,
    finish_name,
    name_of,
    relative,
    search_name,
    steps_name,
)
from benchmarks.archaeology.table import describe
from benchmarks.document import replace_between_marks
from benchmarks.releases import ROOT, published_versions, version_key

UNFINISHED = 3
"""The exit code where work is left."""


def releases_of(packages: list[str], wheels: Path | None) -> list[str]:
    """All releases of the packages, as `package==version`, the oldest first."""
    listed = [(version_key(one), package, one) for package in packages for one in published_versions(package, wheels)]
    return [f"{package}=={version}" for _, package, version in sorted(listed)]


def target_periods(releases: list[str], probes: list[list[Found]]) -> dict[str, list[Period]]:
    """The periods of every target, by the text that loads it."""
    codes = defaultdict[str, dict[str, str]](dict)
    for release, lines in zip(releases, probes, strict=True):
        for line in lines:
            if not line["absent"]:
                codes[line["text"]][release] = line["code"]
    return {text: periods(releases, having) for text, having in sorted(codes.items())}


def put_errors(done: list[Found | None]) -> None:
    """Prints the most frequent errors of what was done; it is done again the next time."""
    errors = Counter(one["error"] for one in done if isinstance(one, dict) and "error" in one)
    for error, times in errors.most_common(9):
        print(f"{times} times failed: {error}", flush=True)


def work(workshop: Workshop, plan: dict[str, list[Period]], pairs: list[Pair], seed: int) -> None:
    """Searches targets side by side, those with most steps first, otherwise in an order drawn by the seed."""
    texts = sorted(plan)
    random.Random(seed).shuffle(texts)
    texts.sort(key=lambda text: -len(steps(plan[text], pairs)))
    put_errors(workshop.together(lambda text: descend(workshop, text, plan[text], pairs), texts))
    repaired = [
        (step["older"], text, one)
        for text in texts
        for step in steps_done(workshop, text, plan[text], pairs)
        for one in step["repaired"]
    ]
    workshop.together(lambda found: workshop.finished(*found), repaired)


def descend(workshop: Workshop, text: str, of_target: list[Period], pairs: list[Pair]) -> None:
    """Searches a target's periods, the newest first, and takes what each has to the newer ones. Raises Failed."""
    following = {chain[0][0]: chain for chain in chains(of_target, pairs)}
    newer, errors = None, []
    for period in reversed(searched(of_target, pairs)):
        ran = workshop.search(period, text, newer)
        if "error" in ran:
            errors.append(ran["error"])
            continue
        newer = period
        if period in following:
            workshop.follow(text, following[period])
    if errors:
        raise Failed(errors[-1])


def steps_done(workshop: Workshop, text: str, of_target: list[Period], pairs: list[Pair]) -> list[Found]:
    """The steps of a target that are kept."""
    kept = [workshop.done(steps_name(chain[0][0], text)) for chain in chains(of_target, pairs)]
    return [step for one in kept if one is not None for step in one["steps"]]


def newest_findings(workshop: Workshop, plan: dict[str, list[Period]], done: list[Found]) -> list[Found]:
    """What shows in the newest release of each target: what was found there, and what shows there still."""
    found = []
    for text, of_target in plan.items():
        newest = of_target[-1]
        ran = workshop.done(f"{search_name(newest, text)}.json")
        shown = {one["path"]: one for one in (ran["findings"] if ran else ())}
        for step in done:
            if step["target"] == name_of(text) and step["newer"] == newest.first:
                shown |= {one["path"]: one for one in step["still"]}
        found += [one | {"target": name_of(text)} for one in shown.values()]
    return found


def absent(plan: dict[str, list[Period]], releases: list[str], probes: list[list[Found]]) -> list[Found]:
    """The targets that a release lacks, each with the reason; a file that it cannot import stands for all of it."""
    missing = []
    for release, lines in zip(releases, probes, strict=True):
        for line in lines:
            texts = [line["text"]] if "text" in line else [text for text in plan if f"/{line['file']}:" in text]
            if line["absent"]:
                missing += [{"release": release, "target": name_of(one), "reason": line["absent"]} for one in texts]
    return missing


def main() -> int:
    """Does what there is time for, and prints what came out so far. The exit code is 3 where work is left."""
    options = parse()
    until = time.monotonic() + options.limit
    workshop = Workshop(options.out.resolve(), options.jobs, options.seconds, options.wheels, until, options.cases)
    releases = releases_of(options.releases, options.wheels)
    start_server(options.stand_in)
    workshop.together(workshop.install, releases)  # Before two searches need the same one.
    probed = workshop.together(lambda release: workshop.probe(release, relative(options.targets)), releases)
    if None in probed:
        print("the time ended before all releases were probed: run the same command again")
        return UNFINISHED
    put_errors(probed)
    probes = [one.get("lines", []) for one in probed]
    plan = target_periods(releases, probes)
    pairs = neighbours(releases)
    third = draw_third(pairs, options.seed)
    pairs = third if options.pairs == "third" else pairs
    work(workshop, plan, pairs, options.seed)
    result = summarise(workshop, plan, pairs) | {
        "releases": releases,
        "third": third,
        "pairs": pairs,
        "seconds": options.seconds,
        "cases": options.cases,
        "absent": absent(plan, releases, probes),
    }
    name = f"result-{'-'.join(options.releases)}-{options.pairs}.json"
    (options.out / name).write_text(json.dumps(result, indent=1), encoding="utf-8")
    print(describe(result))
    if options.write:
        replace_between_marks(options.write, options.releases[-1], describe(result))
    return UNFINISHED if result["left"] else 0


def summarise(workshop: Workshop, plan: dict[str, list[Period]], pairs: list[Pair]) -> Found:
    """What is kept of the plan: searches, steps, how much is `left`, and what shows in the newest release."""
    wanted = [f"{search_name(one, text)}.json" for text, all_of in plan.items() for one in searched(all_of, pairs)]
    wanted += [steps_name(chain[0][0], text) for text, all_of in plan.items() for chain in chains(all_of, pairs)]
    there = [name for name in wanted if workshop.done(name) is not None]
    done = [step for text, all_of in plan.items() for step in steps_done(workshop, text, all_of, pairs)]
    for step in done:
        step["repaired"] = [one | (workshop.done(finish_name(one)) or {}) for one in step["repaired"]]
    ran = sum(name.startswith(SEARCHES) for name in there)
    left, newest = len(wanted) - len(there), newest_findings(workshop, plan, done)
    return {"searches": ran, "steps": done, "left": left, "newest": newest}


def parse() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--releases", action="append", required=True, help="a package; its newer names come later")
    parser.add_argument("--targets", type=Path, required=True, help="the folder of the targets")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each search")
    parser.add_argument("--cases", type=int, default=0, help="of each search, where it runs so many in its seconds")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--out", type=Path, default=ROOT / ".archaeology")
    parser.add_argument("--pairs", choices=("all", "third"), default="all")
    parser.add_argument("--seed", type=int, default=0, help="of the third of the pairs")
    parser.add_argument("--wheels", type=Path, help="a folder of wheels, instead of the index that pip uses")
    parser.add_argument("--stand-in", action="append", default=[], help="a package to replace by an empty one")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds in which work may begin")
    parser.add_argument("--write", type=Path, help="the document that has marks with the last package's name")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
