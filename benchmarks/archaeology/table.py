"""The result of all steps as Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

Found = Mapping[str, Any]
SEVERITIES = ("high", "medium", "low", None)
COLUMNS = ("repaired in", "drawn", "target", "oracle", "outputs", "symptom", "severity", "found in", "what was seen")
LONGEST = 160
"""Characters of a message in the table."""
FOLDER = re.compile(r"\S*/releases/[^/\s]+==[^/\s]+/")
"""Where a release is installed on the machine that ran it."""


def cause(found: Found) -> tuple[object, ...]:
    """What tells the causes of a target's findings apart: oracle, outputs, symptom, what must be off its default."""
    return found["oracle"], found["output"], found["symptom"], *found.get("needs", ())


def is_certified(found: Found) -> bool:
    """Whether it is surely the kernel's: a wrong value is, where the exact value says so."""
    return found["oracle"] not in ("accuracy", "parity") or found["verdict"] == "kernel"


def is_of_toolchain(found: Found) -> bool:
    """Whether a kernel does not compile or a module lacks a name, the release's fault or that of newer libraries."""
    return found["symptom"] == "compile-error" or "ImportError: " in found["message"]


def repaired(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One finding of each cause that was repaired, with `target` and `newer`, the release that repaired it.

    What an unshrunk case needs says nothing of its cause: it is one more case of what a shrunk one shows with the same
    oracle, outputs and symptom.
    """
    causes: dict[tuple[object, ...], dict[str, Any]] = {}
    shrunk = set[tuple[object, ...]]()
    for step in result["steps"]:
        for found in step["repaired"]:
            is_shrunk = found.get("slipped") is False
            place = step["target"], step["newer"]
            key = (*place, is_shrunk, *cause(found if is_shrunk else {**found, "needs": ()}))
            if is_shrunk:
                shrunk.add((*place, *cause({**found, "needs": ()})))
            one = {**found, "target": step["target"], "newer": step["newer"]}
            if key not in causes or rank(one) < rank(causes[key]):
                causes[key] = one
    return [
        one
        for (target, newer, is_shrunk, *sign), one in causes.items()
        if is_shrunk or (target, newer, *sign) not in shrunk
    ]


def rank(found: Found) -> tuple[int, int]:
    """Orders findings of one cause, the most telling first."""
    return SEVERITIES.index(found["severity"]), found["elements"]


def describe(result: Mapping[str, Any]) -> str:
    """Counts, the table of repaired bugs, and what is left in the newest release."""
    found = repaired(result)
    drawn = {newer for _, newer in result["third"]}
    bugs = [one for one in found if is_certified(one) and not is_of_toolchain(one)]
    budget = (f"{result['cases']} cases, at most " if result["cases"] else "") + f"{result['seconds']:g} s"
    places = len({(step["target"], step["newer"]) for step in result["steps"]})
    parts = [
        f"{len(result['releases'])} releases, {len(result['pairs'])} pairs; {result['searches']} searches of "
        f"{budget}, {places} steps of a target from one release to the next, "
        f"{result['left']} searches and steps and {result['unfinished']} repaired findings left; "
        f"{len(result['absent'])} times a release lacks a target.",
        summary("Repaired", bugs),
        summary("Of these in the drawn third of the pairs", [one for one in bugs if one["newer"] in drawn]),
        f"Apart: {sum(map(is_of_toolchain, found))} no longer fail to compile or to import, "
        f"{sum(not is_certified(one) for one in found)} without a verdict for the kernel, "
        f"{sum(step['similar'] for step in result['steps'])} similar to these and not finished, "
        f"{sum(one.get('slipped', False) for one in found)} whose shrunk case slipped to another cause, "
        f"{count(result, 'unconfirmed')} findings agreed on both releases when they were run again, "
        f"{count(result, 'unexamined')} could not be examined on the newer one.",
        table(sorted(bugs, key=lambda one: (result["releases"].index(one["newer"]), one["target"])), drawn),
        "Still in the newest release:\n\n" + "\n".join(newest(result["newest"])),
    ]
    return "\n\n".join(parts)


def summary(title: str, bugs: list[dict[str, Any]]) -> str:
    """How many there are, by severity, and in how many pairs of a target and a release."""
    severities = Counter(one["severity"] for one in bugs)
    by_severity = ", ".join(f"{severities[name]} {name or 'not graded'}" for name in SEVERITIES)
    places = len({(one["target"], one["newer"]) for one in bugs})
    return f"{title}: {len(bugs)} ({by_severity}), of {places} targets and releases."


def count(result: Mapping[str, Any], fate: str) -> int:
    """The findings of all steps that a fate befell."""
    return sum(len(step[fate]) for step in result["steps"])


def table(bugs: Iterable[Found], drawn: set[str]) -> str:
    """The repaired bugs as a table."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for one in bugs:
        message = FOLDER.sub("", one["message"]).replace("|", "\\|").replace("\n", " ")
        cells = (
            one["newer"], "yes" if one["newer"] in drawn else "", one["target"], one["oracle"], one["output"],
            one["symptom"], one["severity"] or "", one["found_in"].partition("==")[2],
            message if len(message) <= LONGEST else message[: LONGEST - 2] + "..",
        )  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def newest(findings: Iterable[Found]) -> list[str]:
    """One line for each cause that shows in the newest release."""
    return sorted({f"- {one['target']}: {one['oracle']} {one['symptom']} of {one['output']}" for one in findings})
