"""Bugs of real releases: the targets of liger-kernel and fla-core against the release that has each and the next.

python -m benchmarks.history [--only ID]... [--seconds N] [--write FILE]

Each release is installed once into a folder of its own; the targets import it, since it stands first on PYTHONPATH. A
bug is found where a finding on the release that has it no longer shows itself on the one that repaired it. The latter
is fuzzed for as long, and must not show the same signature. What was measured is kept beside them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Collection
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.document import replace_between_marks
from benchmarks.releases import fuzz, install
from fuzz import corpus
from fuzz.model.case import Case
from fuzz.target.loader import load
from fuzz.target.spec import Target
from fuzz.triage.conditions import non_defaults

ROOT = Path(__file__).parents[1]
STORE = ROOT / ".history"
OTHERS = "Found on the fixed releases as well, each a cause of its own, with what mpmath says of wrong values:\n\n"


@dataclass(frozen=True)
class Bug:
    """A bug of a release. `oracle` and `needs` (an argument or option) tell bugs of one target and release apart,
    and `output`, one of those that it must be seen in."""

    id: str
    package: str
    buggy: str
    fixed: str
    target: str
    what: str
    oracle: str = ""
    needs: str = ""
    output: str = ""


LIGER, FLA = "liger-kernel", "fla-core"
BUGS = (
    Bug("L01", LIGER, "0.5.3", "0.5.4", "liger/layer_norm", "padding enters the variance"),
    Bug("L03", LIGER, "0.3.0", "0.3.1", "liger/kl_div", "mean over rows only", "accuracy", "reduction", "loss"),
    Bug("L05", LIGER, "0.3.0", "0.3.1", "liger/kl_div", "the backward overwrites its input", "mutation"),
    Bug("L06", LIGER, "0.3.0", "0.3.1", "liger/kl_div", "more than one block writes beyond its row", "bounds"),
    Bug("L08", LIGER, "0.5.8", "0.5.9", "liger/cross_entropy", "unreduced: wrong gradient", "", "reduction"),
    Bug("L10", LIGER, "0.8.1", "0.8.2", "liger/fused_linear_cross_entropy", "unreduced: gradient", "", "reduction"),
    Bug("L12", LIGER, "0.8.3", "0.8.4", "liger/cross_entropy", "softcap lifts the padding", "", "softcap"),
    Bug("L14", LIGER, "0.8.3", "0.8.4", "liger/layer_norm", "statistics kept in bfloat16"),
    Bug("L16", LIGER, "0.8.3", "0.8.4", "liger/tvd", "subgradient at a tie"),
    Bug("L18", LIGER, "0.8.3", "0.8.4", "liger/attn_res", "silent cap of 32 blocks"),
    Bug("L20", LIGER, "0.8.4", "0.8.5", "liger/fused_linear_cross_entropy", "column-major operands"),
    Bug("L23", LIGER, "0.8.4", "0.8.5", "liger/selective_log_softmax", "column-major ids"),
    Bug("L26", LIGER, "0.8.4", "0.8.5", "liger/grpo_loss", "corrected KL of sequences", "", "bias_corrected"),
    Bug("F01", FLA, "0.5.2", "0.6.0", "fla/rms_norm_gated_linear", "recomputation differs from the forward"),
    Bug("F02", FLA, "0.5.0", "0.5.1", "fla/causal_conv1d", "strides of the upstream gradient"),
    Bug("F05", FLA, "0.5.1", "0.5.2", "fla/rotary", "negative offset: rows never written"),
    Bug("F07", FLA, "0.5.2", "0.6.0", "fla/local_cumsum", "reverse sums by cancellation"),
    Bug("F09", FLA, "0.5.2", "0.6.0", "fla/rwkv_relu_square", "writes beyond the end"),
    Bug("F12", FLA, "0.5.2", "0.6.0", "fla/recurrent_kda", "unmasked load of the gate"),
    Bug("O01", LIGER, "0.8.5", "", "liger/cross_entropy_kept", "the input is overwritten", "mutation"),
)  # fmt: skip


def unpacked(package: str, version: str) -> Path:
    """The folder of a release, installed where it is not there yet."""
    return install(package, version, STORE / f"{package}-{version}")


def signature(found: dict[str, Any], target: str) -> tuple[str, ...]:
    """What tells causes apart: the oracle, the outputs, the symptom, and what triggers it."""
    return found["oracle"], found["output"], found["symptom"], *sorted(non_defaults(case_of(found), load(target)))


def case_of(found: dict[str, Any]) -> Case:
    """The shrunk case of a finding."""
    return corpus.read(Path(found["path"])).case


def measured(bug: Bug, *budget: str) -> dict[str, Any]:
    """One bug's row: what was found where by runs with a budget, as options of the command."""
    ran = searched(unpacked(bug.package, bug.buggy), bug.target, *budget)
    if not bug.fixed:
        return row(bug, ran, [one for one in ran["findings"] if one["oracle"] == bug.oracle], [])
    fixed = unpacked(bug.package, bug.fixed)
    gone = vanished(bug, fixed, ran["findings"])
    again = searched(fixed, bug.target, *budget)
    signatures = {signature(one, bug.target) for one in again["findings"]}
    stayed = [one for one in gone if signature(one, bug.target) in signatures]
    return row(bug, ran, gone, stayed) | {
        "others": [other(one) for one in again["findings"]],
        "error": ran.get("error", ""),
        "fixed_error": again.get("error", ""),
        "fixed_cases": again.get("cases", 0),
    }


def other(found: dict[str, Any]) -> str:
    """A finding on the fixed release in a few words, with its verdict where that is adjudicated."""
    verdict = f" ({found['verdict']})" if found["oracle"] == "accuracy" else ""
    return f"{found['oracle']} {found['output']} {found['symptom']}{verdict}"


@cache
def searched(release: Path, target: str, *budget: str) -> Any:
    """What a run of a target found on a release, its entries in a corpus of their own; once for all bugs of both."""
    entries = STORE / "findings" / release.name / target.replace("/", "_")
    shutil.rmtree(entries, ignore_errors=True)
    return fuzz(release, "run", target, *budget, "--corpus", str(entries))


def vanished(bug: Bug, fixed: Path, findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The findings of the bug's kind whose shrunk case agrees on the fixed release."""
    if not findings:
        return []
    target = load(bug.target)
    kind = [one for one in findings if is_of_kind(bug, target, one["oracle"], one["output"].split("+"), case_of(one))]
    if not kind:
        return []
    replayed = fuzz(fixed, "replay", *(one["path"] for one in kind), "--target", bug.target)["entries"]
    agree = {entry["path"] for entry in replayed if not entry["reproduced"]}
    return [one for one in kind if one["path"] in agree]


def is_of_kind(bug: Bug, target: Target, oracle: str, outputs: Collection[str], case: Case) -> bool:
    """Whether a finding of the target may be the bug, by its oracle, its outputs and what its case needs."""
    if bug.oracle not in ("", oracle) or bug.output not in ("", *outputs):
        return False
    return not bug.needs or bug.needs in non_defaults(case, target)


def row(bug: Bug, ran: dict[str, Any], found: list[dict[str, Any]], stayed: list[dict[str, Any]]) -> dict[str, Any]:
    """What the table tells of a bug, by its first finding."""
    made: dict[str, Any] = {**asdict(bug), "found": bool(found), "cases": ran.get("cases", 0), "stayed": len(stayed)}
    if found:
        first = min(found, key=lambda one: one["first_seconds"])
        made |= {key: first[key] for key in ("output", "symptom", "first_seconds", "first_case", "dims", "message")}
        made["oracle"] = first["oracle"]
    return made


def is_found(one: dict[str, Any]) -> bool:
    """Whether a row shows its bug, and a run of the fixed release, which had cases, does not."""
    return bool(one["found"]) and not one["stayed"] and (not one["fixed"] or bool(one["fixed_cases"]))


def on_the_fixed(one: dict[str, Any]) -> str:
    """Whether the bug of a row shows again on the release that repaired it."""
    if not one["fixed"]:
        return "no release"
    if not one["fixed_cases"]:
        return f"**not known**: {one.get('fixed_error') or one.get('error') or 'no case'}"
    return "**yes**" if one["stayed"] else f"no, in {one['fixed_cases']} cases"


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = [
        "| bug | release | target | what is wrong | found as | s | case | least case | again on the fixed release |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        release = f"{one['package']} {one['buggy']}"
        head = f"| {one['id']} | {release} | {one['target']} | {one['what']} |"
        if not one["found"]:
            why = one.get("error") or f"not in {one['cases']} cases"
            lines.append(f"{head} **no**: {why} | - | - | - | - |")
            continue
        dims = " ".join(f"{name}={size}" for name, size in one["dims"].items())
        seen = f"{one['oracle']} {one['symptom']} of {one['output']}"
        when = f"{one['first_seconds']:.0f} | {one['first_case']}"
        lines.append(f"{head} {seen} | {when} | {dims} | {on_the_fixed(one)} |")
    return "\n".join(lines)


def others(rows: list[dict[str, Any]]) -> str:
    """What else was found on the releases that are fixed."""
    told = {f"{one['package']} {one['fixed']} {one['target']}": one.get("others", []) for one in rows if one["fixed"]}
    lines = [f"- {place}: {', '.join(sorted(set(found)))}" for place, found in told.items() if found]
    return OTHERS + "\n".join(lines) if lines else ""


def write(path: Path) -> None:
    """Puts the table of everything measured so far into a document."""
    places = [STORE / f"{bug.id}.json" for bug in BUGS]
    rows = [json.loads(place.read_text(encoding="utf-8")) for place in places if place.is_file()]
    replace_between_marks(path, "history", page(rows))


def page(rows: list[dict[str, Any]]) -> str:
    """How many are found, with their table and what else was found."""
    times = ", ".join(str(one) for one in sorted({one["seconds"] for one in rows}))
    counts = (
        f"{sum(map(is_found, rows))} of {len(BUGS)} found",
        f"{len(rows)} run",
        f"{sum(bool(one['stayed']) for one in rows)} again on the fixed release",
        f"{sum(bool(one['fixed'] and not one.get('fixed_cases')) for one in rows)} without a case on it",
    )
    head = f"{', '.join(counts)}; for {times} s on the release and as long on the fixed one."
    return "\n\n".join(part for part in (head, table(rows), others(rows)) if part)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", choices=[bug.id for bug in BUGS])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    STORE.mkdir(exist_ok=True)
    missed = 0
    for bug in BUGS:
        if bug.id in (options.only or [bug.id]):
            made = measured(bug, "--seconds", str(options.seconds)) | {"seconds": options.seconds}
            (STORE / f"{bug.id}.json").write_text(json.dumps(made), encoding="utf-8")
            print(table([made]).splitlines()[-1], flush=True)
            missed += not is_found(made)
    if options.write:
        write(options.write)
    sys.exit(int(missed > 0))


if __name__ == "__main__":
    main()
