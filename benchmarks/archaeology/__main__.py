"""Repaired bugs of published libraries: a folder of targets against every release of the library that they are for.

python -m benchmarks.archaeology --releases PACKAGE --targets FOLDER [--seconds N] [--cases N] [--jobs N]
    [--out FOLDER] [--pairs all|third] [--seed N] [--wheels FOLDER] [--stand-in PACKAGE] [--limit N] [--grading N]
    [--write FILE]

A case that disagrees in one release, agrees on the next, and still disagrees on its own when it is run again, shows a
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
from collections.abc import Sequence
from pathlib import Path

from benchmarks.archaeology.plan import Pair, Period, chains, draw_third, neighbours, periods, searched, steps
from benchmarks.archaeology.processes import start_server
from benchmarks.archaeology.run import (
    GRADING,
    SEARCHES,
    Chain,
    Found,
    Workshop,
    choose_repaired,
    finish_name,
    name_of,
    relative,
    search_name,
    sign_of,
    step_name,
)
from benchmarks.archaeology.table import describe, is_of_toolchain
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


def release_pairs(releases: list[str], probed: list[Found]) -> list[Pair]:
    """The pairs of neighbours among the releases that hold at least one target.

    A release whose probe failed counts as one, so that the pairs that a seed draws do not depend on the failure.
    """
    holding = [
        release
        for release, one in zip(releases, probed, strict=True)
        if "error" in one or not all(line["absent"] for line in one["lines"])
    ]
    return neighbours(holding)


def put_errors(done: list[Found | None]) -> None:
    """Prints the most frequent errors of what was done; it is done again the next time."""
    errors = Counter(one["error"] for one in done if isinstance(one, dict) and "error" in one)
    for error, times in errors.most_common(9):
        print(f"{times} times failed: {error}", flush=True)


def work(workshop: Workshop, plan: dict[str, list[Period]], pairs: list[Pair], seed: int) -> None:
    """Follows all chains of steps, then finishes what is repaired.

    Targets with most steps come first, otherwise they are in an order drawn by the seed.
    """
    texts = sorted(plan)
    random.Random(seed).shuffle(texts)
    texts.sort(key=lambda text: -len(steps(plan[text], pairs)))
    put_errors(workshop.together(lambda one: workshop.follow(*one), chain_steps(plan, pairs, texts)))
    done = steps_done(workshop, plan, pairs)
    workshop.together(lambda one: workshop.finished(*one), to_finish(workshop, done))


def chain_steps(plan: dict[str, list[Period]], pairs: list[Pair], texts: Sequence[str]) -> list[tuple[str, Chain, int]]:
    """All steps of all chains: the first ones of all come first, as most of what they leave is found once more."""
    every = (
        (text, chain, number) for text in texts for chain in chains(plan[text], pairs) for number in range(len(chain))
    )
    return sorted(every, key=lambda one: one[2])


def steps_done(workshop: Workshop, plan: dict[str, list[Period]], pairs: list[Pair]) -> list[Found]:
    """The steps that are kept."""
    names = (step_name(chain[0][0], text, chain[n][1]) for text, chain, n in chain_steps(plan, pairs, list(plan)))
    return [step for name in names if (step := workshop.done(name)) is not None]


def to_finish(workshop: Workshop, done: list[Found]) -> list[tuple[Found, Found]]:
    """What of all steps is to be finished, each with its step: so many of a target with the same oracle, outputs and
    symptom that one release repaired, and what was finished already.

    The first of each come first, and kernels that do not compile last.
    """
    groups = defaultdict[object, list[Found]](list)
    for number, step in enumerate(done):
        for one in step["repaired"]:
            groups[step["target"], step["newer"], sign_of(one)].append(one | {"text": step["text"], "step": number})
    ranked = []
    for group in groups.values():
        chosen = choose_repaired(group)
        chosen += [one for one in group if one not in chosen and workshop.done(finish_name(one))]
        ranked += [(is_of_toolchain(one), rank, done[one["step"]], one) for rank, one in enumerate(chosen)]
    return [(step, one) for *_, step, one in sorted(ranked, key=lambda each: each[:2])]


def newest_findings(plan: dict[str, list[Period]], done: list[Found]) -> list[Found]:
    """What was found in an older release and shows in the newest one of its target still."""
    newest = {name_of(text): of_target[-1].first for text, of_target in plan.items()}
    return [
        one | {"target": step["target"]}
        for step in done
        if step["newer"] == newest[step["target"]]
        for one in step["still"]
    ]


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
    limits = until, options.cases, options.grading
    workshop = Workshop(options.out.resolve(), options.jobs, options.seconds, options.wheels, *limits)
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
    pairs = release_pairs(releases, probed)
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
    return UNFINISHED if result["left"] or result["unfinished"] else 0


def summarise(workshop: Workshop, plan: dict[str, list[Period]], pairs: list[Pair]) -> Found:
    """What is kept of the plan: searches, steps, how much is `left`, how much of what is repaired is `unfinished`, and
    what shows in the newest release.
    """
    wanted = [f"{search_name(one, text)}.json" for text, all_of in plan.items() for one in searched(all_of, pairs)]
    wanted += [step_name(chain[0][0], text, chain[n][1]) for text, chain, n in chain_steps(plan, pairs, list(plan))]
    there = [name for name in wanted if workshop.done(name) is not None]
    done = steps_done(workshop, plan, pairs)
    newest, unfinished = newest_findings(plan, done), 0
    repaired = [(step, one, workshop.done(finish_name(one))) for step, one in to_finish(workshop, done)]
    for step in done:
        before = len(step["repaired"]) + step["similar"]
        step["repaired"] = list[Found]()
        for of, one, after in repaired:
            if of is step and (after is None or after["repaired"]):
                unfinished += after is None
                step["repaired"].append(one | (after or {}))
            elif of is step:
                step["unconfirmed"].append(one)
                before -= 1
        step["similar"] = before - len(step["repaired"])
    ran = sum(name.startswith(SEARCHES) for name in there)
    left = len(wanted) - len(there)
    return {"searches": ran, "steps": done, "left": left, "unfinished": unfinished, "newest": newest}


def parse() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--releases", action="append", required=True, help="a package; its newer names come later")
    parser.add_argument("--targets", type=Path, required=True, help="the folder of the targets")
    parser.add_argument("--seconds", type=float, default=14.0, help="of each search")
    parser.add_argument("--cases", type=int, default=0, help="of each search, where it runs so many in its seconds")
    parser.add_argument("--grading", type=float, default=GRADING, help="seconds to shrink and grade a repaired case")
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
