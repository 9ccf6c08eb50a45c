"""What a comparison of two checkouts with empty caches measures."""

import json
import os
import signal
import subprocess
import sys
from itertools import permutations
from types import SimpleNamespace

import pytest

from benchmarks.cold import CHILD
from benchmarks.cold_against import __main__ as cold_against
from benchmarks.cold_against.__main__ import complete, last_line, may_be, print_medians
from benchmarks.cold_against.sides import ROOT, Side, pairs
from benchmarks.history import Bug


def test_both_sides_of_a_name_have_empty_caches_and_processors_of_their_own():
    def measure(side, name, cpus, cache):
        running = side.start(cpus, cache, "-c", "import os, sys; print(os.getcwd(), sys.path[0])")
        where, path = running.communicate()[0].split()
        assert os.path.realpath(cache) == where and not os.listdir(cache)
        return name, path, cpus

    sides = [Side(ROOT), Side(ROOT / "benchmarks")]
    measured = dict(pairs(measure, ["a", "b"], sides, 2))
    for name, results in measured.items():
        assert [result[0] for result in results] == [name, name]
        assert [result[1] for result in results] == [str(side.tree) for side in sides]
    if len(os.sched_getaffinity(0)) > 1:
        assert all(first[2] != second[2] for first, second in measured.values())


def test_nothing_is_begun_after_the_limit():
    assert not list(pairs(lambda *_: 0, ["a", "b"], [Side(ROOT)], 1, limit=0))


def test_processes_of_a_side_import_bytecode(tmp_path):
    module = tmp_path / "fuzz" / "module.py"
    module.parent.mkdir()
    module.touch()
    side = Side(tmp_path)
    side.compile_bytecode()
    running = side.start(
        [0], str(tmp_path), "-c", "import os, fuzz.module; print(os.path.exists(fuzz.module.__cached__))"
    )
    assert running.communicate()[0].split() == ["True"]


def measured_by_child(what, cache):
    environment = os.environ | {"TRITON_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", str(CHILD), what, "gelu_bw", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_the_launches_that_compile_are_measured(tmp_path):
    (seconds,) = measured_by_child("specialisations", tmp_path).values()
    assert len(seconds) == 1 and seconds[0] > 0


def test_cases_and_processor_seconds_of_plans_are_measured(tmp_path):
    measured = measured_by_child("rates", tmp_path)
    assert measured["cases"] > 0 and measured["seconds"] > 0


def test_a_process_that_does_not_end_in_time_is_killed(tmp_path):
    endless = Side(ROOT).start([0], str(tmp_path), "-c", "import time; time.sleep(600)")
    assert last_line(endless, 0.1) == {}
    assert endless.returncode == -signal.SIGKILL


def test_a_row_in_which_a_side_failed_is_left_out(capsys):
    rows = [("a", [None, 3.25]), ("b", [2, 3]), ("c", [None, None]), ("d", [None]), ("e", [{}, None])]
    assert list(complete(rows)) == [("b", [2, 3])]
    assert capsys.readouterr().out.splitlines() == [
        "| a | failed before | now 3.25 s |", "| c | failed before and now |", "| d | failed now |",
        "| e | failed now |",
    ]  # fmt: skip


class Printing:
    """A side whose processes print a text."""

    def __init__(self, text):
        self.text = text

    def start(self, *_):
        return subprocess.Popen([sys.executable, "-c", f"print({self.text!r})"], stdout=subprocess.PIPE, text=True)


def test_a_checkout_that_fails_is_not_a_slow_one(monkeypatch, capsys):
    monkeypatch.setattr(cold_against, "pairs", lambda measure, names, sides, *_: (
        (name, [measure(side, name, [0], "") for side in sides]) for name in names
    ))  # fmt: skip
    asked = SimpleNamespace(names=["one"], jobs=1, limit=9.0, width=1, seconds=1)
    cold_against.compare_plans([Printing("Traceback"), Printing('{"plans": 50, "cases": 60}')], asked)
    assert capsys.readouterr().out.endswith("| one | failed before |\n| median of 0 | | | nan | | |\n")


def test_medians_do_not_depend_on_the_order_of_rows(capsys):
    endless = float("inf")
    for rows in permutations([(endless, endless), (10, 5), (20, 2), (endless, 4)]):
        print_medians(rows, "s")
    assert set(capsys.readouterr().out.splitlines()) == {"| median of 4 | inf s | 4.5 s | 6.0 |"}


@pytest.mark.parametrize(("output", "oracle", "same"), [("dx", "", True), ("y", "", False), ("dx", "bounds", False)])
def test_a_finding_in_another_output_is_not_the_bug(monkeypatch, tmp_path, output, oracle, same):
    entry = SimpleNamespace(case=None, finding=SimpleNamespace(oracle="accuracy", outputs=("dx", "dw")))
    monkeypatch.setattr(cold_against.corpus, "read", lambda _: entry)
    bug = Bug("T1", "tinylib", "1", "2", "softmax", "what", oracle, output=output)
    assert may_be(bug, tmp_path) is same
