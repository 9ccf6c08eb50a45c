"""A process of the honest set fuzzes what it is asked for, and keeps what a run had no time to confirm."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.honest.batch import MOST_KEPT, Keeper
from fuzz import corpus
from fuzz.model.finding import Finding
from fuzz.search.engines.random import RandomEngine
from fuzz.target.loader import load

ROOT = Path(__file__).parents[3]


def test_each_line_is_answered(tmp_path):
    asked = [
        {"target": "softmax", "seed": 1, "cases": 5, "seconds": 300, "corpus": "own"},
        {"target": "benchmarks/honest/kernels/nowhere.py:none", "corpus": "none"},
    ]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.honest.batch", "--corpus", tmp_path],
        input="".join(json.dumps(one) + "\n" for one in asked), capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    good, missing = map(json.loads, done.stdout.splitlines())
    assert (good["target"], good["cases"], good["seed"], good["kept"]) == ("softmax", 5, 1, [])
    assert missing["target"] == asked[1]["target"] and "error" in missing


def test_disagreements_that_were_cut_off_are_kept_as_entries(tmp_path):
    target = load("softmax")
    engine = RandomEngine(target, 3)
    keeper = Keeper(tmp_path / "cpu-cut-off", "cpu")
    for number in range(MOST_KEPT + 2):
        keeper.on_cut_off(engine.case(number), Finding("accuracy", ("y",), "value", "y is wrong"), number)
    assert len(keeper.entries) == MOST_KEPT
    entry = corpus.read(Path(keeper.entries[0]))
    assert (entry.case.target, entry.provenance.cut_off, entry.provenance.first_case) == ("softmax", "confirmation", 0)
