"""What a comparison of two checkouts with empty caches measures."""

import json
import os
import signal
import subprocess
import sys

from benchmarks.cold import CHILD
from benchmarks.cold_against.__main__ import last_line
from benchmarks.cold_against.sides import ROOT, Side, pairs


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
