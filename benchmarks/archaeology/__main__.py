"""Repaired bugs of published libraries: a folder of targets against every release of the library that they are for.

python -m benchmarks.archaeology --releases PACKAGE --targets FOLDER [--seconds N] [--jobs N] [--out FOLDER]
    [--pairs all|third] [--seed N] [--wheels FOLDER] [--limit N] [--write FILE]

A finding in one release that agrees on the next release, and still disagrees on its own when it is run again, is a
repaired bug. Every result is kept in --out; the command goes on where it ended. A library whose package was renamed
takes --releases more than once.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from benchmarks.archaeology.plan import Pair, Period, draw_third, neighbours, periods, searched, steps
from benchmarks.archaeology.run import Found, Workshop, name_of, relative, with_release
from benchmarks.archaeology.table import describe
from benchmarks.document import replace_between_marks
from benchmarks.releases import ROOT, published_versions, version_key


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


def search_all(workshop: Workshop, plan: dict[str, list[Period]], pairs: list[Pair]) -> bool:
    """Runs every search that is not done; whether there was time for all."""
    wanted = [(period, text) for text, of_target in plan.items() for period in searched(of_target, pairs)]
    print(f"{len(wanted)} searches of {workshop.seconds:g} s", flush=True)
    done = workshop.together(lambda one: workshop.search(*one), wanted)
    print(f"{sum(ran is not None for ran in done)} of {len(wanted)} done", flush=True)
    put_errors(done)
    return None not in done


def put_errors(done: list[Found | None]) -> None:
    """Prints the most frequent errors of what was done; it is done again the next time."""
    errors = Counter(one["error"] for one in done if one and "error" in one)
    for error, times in errors.most_common(9):
        print(f"{times} times failed: {error}", flush=True)


def follow_all(workshop: Workshop, plan: dict[str, list[Period]], pairs: list[Pair]) -> list[Found] | None:
    """The results of all steps; None where there was no time for one."""
    chains = [(text, steps(of_target, pairs)) for text, of_target in plan.items()]
    print(f"{sum(len(chain) for _, chain in chains)} steps from one release to the next", flush=True)
    done = workshop.together(lambda one: workshop.follow(*one), chains)
    return None if None in done else [step for results in done for step in results]


def newest_findings(workshop: Workshop, plan: dict[str, list[Period]], done: list[Found]) -> list[Found]:
    """What shows in the newest release of each target: what was found there, and what shows there still."""
    found = []
    for text, of_target in plan.items():
        newest = of_target[-1]
        shown = {one["path"]: one for one in with_release(workshop.search(newest, text))}
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
    """Does what there is time for, and prints the result once all is done. The exit code is 3 where work is left."""
    options = parse()
    until = time.monotonic() + options.limit
    workshop = Workshop(options.out.resolve(), options.jobs, options.seconds, options.wheels, until)
    releases = releases_of(options.releases, options.wheels)
    workshop.together(workshop.install, releases)  # Before two searches need the same one.
    probes = workshop.together(lambda release: workshop.probe(release, relative(options.targets)), releases)
    if None in probes:
        return unfinished("probes")
    put_errors(probes)
    probes = [probed.get("lines", []) for probed in probes]
    plan = target_periods(releases, probes)
    pairs = neighbours(releases)
    pairs = draw_third(pairs, options.seed) if options.pairs == "third" else pairs
    if not search_all(workshop, plan, pairs):
        return unfinished("searches")
    done = follow_all(workshop, plan, pairs)
    if done is None:
        return unfinished("steps")
    result = {
        "releases": releases,
        "third": draw_third(neighbours(releases), options.seed),
        "pairs": pairs,
        "seconds": options.seconds,
        "searches": sum(len(searched(of_target, pairs)) for of_target in plan.values()),
        "absent": absent(plan, releases, probes),
        "steps": done,
        "newest": newest_findings(workshop, plan, done),
    }
    text = json.dumps(result, indent=1)
    (options.out / f"result-{'-'.join(options.releases)}-{options.pairs}.json").write_text(text, encoding="utf-8")
    print(describe(result))
    if options.write:
        replace_between_marks(options.write, options.releases[-1], describe(result))
    return 0


def unfinished(what: str) -> int:
    """Says that there was no time for all of something; the exit code."""
    print(f"the time is over, {what} are left: run the same command again", flush=True)
    return 3


def parse() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--releases", action="append", required=True, help="a package; its newer names come later")
    parser.add_argument("--targets", type=Path, required=True, help="the folder of the targets")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each search")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--out", type=Path, default=ROOT / ".archaeology")
    parser.add_argument("--pairs", choices=("all", "third"), default="all")
    parser.add_argument("--seed", type=int, default=0, help="of the third of the pairs")
    parser.add_argument("--wheels", type=Path, help="a folder of wheels, instead of the index that pip uses")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds in which work may begin")
    parser.add_argument("--write", type=Path, help="the document that has marks with the last package's name")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
