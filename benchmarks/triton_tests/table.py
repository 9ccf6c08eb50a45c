"""Classifies what became of tests, and writes the table of the document."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

Record = dict[str, Any]
CLASSES = ("passed", "skipped", "refused", "needs a GPU", "reported", "failed", "too slow", "crashed")
"""In the order of the columns. `skipped` by the test itself, also as an expected failure; `reported`: an access out of
bounds, a failed assertion; `too slow`: no answer within the limit; `crashed`: died, or could not be collected."""
GPU = (
    r"KeyError: '(ptx|ttgir|llir|cubin|sass|amdgcn|spv|hsaco)'",
    r"Torch not compiled with CUDA enabled",
    r"Found no NVIDIA driver",
    r"No CUDA GPUs are available",
    r"(ptxas|cuobjdump|nvdisasm)",
)
"""Errors of tests that read a GPU's code or ask for a GPU's memory."""
REFUSED = re.compile(r"UnsupportedOperation: (.*?) is not supported by the cpu backend")
FRONT_END = re.compile(r"(type fp8\w+ not supported in this architecture|input_precision must be one of)")
REPORTS = ("OutOfBounds", "MemoryFault", "DeviceAssertion")


def classify(record: Record) -> tuple[str, str]:
    """The class of a test, and the reason in a few words."""
    outcome, causes = record["outcome"], record.get("causes", [])
    if outcome in ("passed", "skipped"):
        return outcome, ""
    if outcome != "failed":
        return ("too slow", "no answer within the limit") if outcome == "hung" else ("crashed", outcome)
    text = " ; ".join(causes)
    if match := REFUSED.search(text) or FRONT_END.search(text):
        return "refused", match[1][:120]
    if causes and causes[0].startswith(REPORTS):
        return "reported", causes[0][:160]
    for pattern in GPU:
        if match := re.search(pattern, text):
            return "needs a GPU", match[0][:80]
    # What pytest adds to an assertion holds addresses and paths.
    return "failed", (causes[0] if causes else "no message").partition(" + where ")[0][:100]


def file_of(test: str) -> str:
    return test.partition("::")[0].rpartition("/")[2]


def written(records: Iterable[Record], command: str) -> str:
    """The table by file, then the reasons."""
    found = [(record, *classify(record)) for record in records]
    files = sorted({file_of(record["test"]) for record, _, _ in found})
    lines = [f"`{command}`", "", f"| file | tests | {' | '.join(CLASSES)} |", "|---" * (len(CLASSES) + 2) + "|"]
    for file in [*files, "all"]:
        of_file = Counter(kind for record, kind, _ in found if file in ("all", file_of(record["test"])))
        counts = " | ".join(str(of_file[kind]) for kind in CLASSES)
        lines.append(f"| {file} | {of_file.total()} | {counts} |")
    return "\n".join([*lines, "", headline(found), "", *reasons(found)])


def headline(found: list[tuple[Record, str, str]]) -> str:
    """The share of passed tests among those that ran and need no GPU."""
    kinds = Counter(kind for _, kind, _ in found)
    concerned = kinds.total() - kinds["skipped"] - kinds["needs a GPU"]
    share = kinds["passed"] / max(concerned, 1)
    return f"{kinds['passed']} of {concerned} that ran and need no GPU passed ({share:.1%})."


def reasons(found: list[tuple[Record, str, str]]) -> list[str]:
    """How often each reason occurs, and of a test that shows it."""
    counted = Counter((kind, reason) for _, kind, reason in found if reason)
    first = {(kind, reason): record["test"] for record, kind, reason in reversed(found)}
    lines = ["| class | reason | tests | such as |", "|---|---|---|---|"]
    for (kind, reason), count in sorted(counted.items(), key=lambda item: (CLASSES.index(item[0][0]), -item[1])):
        test = first[kind, reason].partition("::")[2]
        lines.append(f"| {kind} | {escaped(reason)} | {count} | `{escaped(test[:80])}` |")
    return lines


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
