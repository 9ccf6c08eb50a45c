"""`fuzz judge script` on every program of TritonBench_G: verdicts, seconds, and why some cannot be run.

python -m benchmarks.referee_scripts [--source DIR] [--jobs N] [--out DIR] [--match TEXT] [--sample N --seed N]
                                     [--write FILE]

The repository is cloned at a fixed commit into .referee/, or taken from the folder TritonBench of --source. Nothing of
it is kept here. Each judgement is appended to OUT/scripts.jsonl with a key of the content and of the versions, so that
an interrupted run goes on; OUT/scripts.md is the summary that is printed at the end.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.document import replace_between_marks
from benchmarks.referee_sources import STORE, TRITONBENCH, fetch
from fuzz.cli.judge import format_line
from fuzz.judge.batch.results_file import ResultsFile
from fuzz.judge.batch.run_batch import run_batch
from fuzz.judge.batch.task import JudgeTask, TaskOptions
from fuzz.judge.formats import SCRIPT
from fuzz.judge.result.judgement import UNSUPPORTED, WRONG
from fuzz.worker.system import total_memory

PROGRAMS = Path("data", "TritonBench_G_v1")
REPORTED = frozenset(
    """
    apply_penalty attention_fwd_triton1 chunk_bwd_dqkg chunk_delta_fwd chunk_gated_attention chunk_gla_fwd
    chunk_gla_simple chunk_linear_attn chunk_retention_ops decay_cumsum fused_recurrent_delta fused_recurrent_hgrn
    fused_recurrent_retention fused_rotary_embedding layer_norm_triton matmul_triton2 nested_loops_processing
    parallel_attention parallel_retention_attention quantize_kv_copy rotary_emb_nopad softmax_reducev
    token_attn_mistral token_attn_reduceV
    """.split()
)
"""The programs of TritonBench's issue 12, whose accesses are out of bounds."""
MISSING = re.compile(r"No module named '([\w.]+)'|cannot import name '(\w+)' from '([\w.]+)'")
LEAST_MEMORY = 4 << 30
"""Bytes that the process of a program may hold at least, however many run at once."""
Document = Mapping[str, Any]


def list_programs(folder: Path, match: str, sample: int | None, seed: int) -> list[Path]:
    """The programs that have a text in their names, or so many of them that a seed draws."""
    paths = [path for path in sorted(folder.glob("*.py")) if match in path.name]
    return paths if sample is None else random.Random(seed).sample(paths, min(sample, len(paths)))


def judge_programs(paths: Sequence[Path], out: Path, jobs: int) -> list[Document]:
    """The judgement as JSON of each program."""
    share = max(total_memory() // jobs, LEAST_MEMORY)
    tasks = [JudgeTask(TaskOptions(SCRIPT, "cpu", 0.0), "", str(path), share) for path in paths]
    results = ResultsFile(out / "scripts.jsonl")
    return run_batch(tasks, jobs, results, lambda one: print(format_line(one), flush=True)).judgements


def name_of(judgement: Document) -> str:
    return Path(judgement["solution"]).stem


def summary_lines(judgements: Sequence[Document]) -> Iterator[str]:
    """The summary in Markdown: counts, seconds, reasons, and the reports to read."""
    ordered = sorted(judgements, key=name_of)
    counts = Counter(one["verdict"] for one in ordered)
    seconds = [one["seconds"] for one in ordered]
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    median = statistics.median(seconds)
    yield f"{len(ordered)} programs: {verdicts}; {median:.1f} s in the median, {max(seconds):.1f} s at most."
    yield ""
    flagged = {name_of(one) for one in ordered if one["verdict"] == WRONG}
    due = REPORTED & {name_of(one) for one in ordered}
    missed = ", ".join(sorted(due - flagged))
    yield f"Issue 12: {len(due & flagged)} of {len(due)} flagged{f', not {missed}' if missed else ''}."
    yield ""
    refused = [one for one in ordered if one["verdict"] == UNSUPPORTED]
    modules = {name_of(one): missing_module(one["reason"]) for one in refused}
    yield f"UNSUPPORTED: {len(refused)}, of which {sum(map(bool, modules.values()))} import what is not there."
    yield from (f"- {name_of(one)}: {modules[name_of(one)] or one['reason']}" for one in refused)
    yield ""
    others = [one for one in ordered if name_of(one) in flagged - REPORTED]
    yield f"Flagged beside issue 12: {len(others)}."
    for one in others:
        # Where the programs lie is of no interest to a reader of the document.
        folder = f"{Path(one['solution']).parent}/"
        yield from (f"- {name_of(one)}: {finding_text(found).replace(folder, '')}" for found in counting(one))


def missing_module(reason: str) -> str:
    """The module, or the name in a module, that a program imports and that is not there; empty where none is."""
    found = MISSING.search(reason)
    return (found[1] or f"{found[3]}.{found[2]}") if found else ""


def counting(judgement: Document) -> list[Document]:
    """The findings that make a program wrong."""
    return [found for found in judgement["findings"] if found["severity"] != "low"]


def finding_text(finding: Document) -> str:
    return f"{finding['severity']} {finding['oracle']}/{finding['symptom']}: {finding['message']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--jobs", type=int, default=1, help="judge so many programs at once")
    parser.add_argument("--out", type=Path, default=STORE)
    parser.add_argument("--match", default="", help="judge programs with this text in their names")
    parser.add_argument("--sample", type=int, help="judge so many of them, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, help="put the summary into this document")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    folder = fetch(TRITONBENCH, options.source) / PROGRAMS
    programs = list_programs(folder, options.match, options.sample, options.seed)
    if not programs:
        sys.exit(f"there is no such program in {folder}")
    judgements = judge_programs(programs, options.out, options.jobs)
    text = "\n".join(summary_lines(judgements))
    (options.out / "scripts.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    if options.write:
        replace_between_marks(options.write, "scripts", text)


if __name__ == "__main__":
    main()
