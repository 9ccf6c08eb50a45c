"""Triton's own tests: sampling, processes that die, the table; and a tiny sample where a checkout is at hand."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.triton_tests import shards, table

ROOT = Path(__file__).parents[2]
CHECKOUT = ROOT / ".triton-tests/checkout"
CONFTEST = """
def pytest_addoption(parser):
    parser.addoption("--device", action="store", default="cuda")
"""
TESTS = """
import os, time, pytest
class UnsupportedOperation(Exception): pass
def test_right(): pass
def test_left_out(): pytest.skip("not here")
def test_fatal(): os._exit(3)
def test_refused():
    try: raise UnsupportedOperation("tt.new is not supported by the cpu backend (kernel k, f.py:1)")
    except UnsupportedOperation as error: raise RuntimeError("failed") from error
def test_text(): {}["ptx"]
def test_wrong(): assert 1 == 2
"""


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    folder = tmp_path / shards.FOLDER / "unit"
    folder.mkdir(parents=True)
    (folder.parent / "conftest.py").write_text(CONFTEST)
    (folder / "test_few.py").write_text(TESTS)
    plain = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
    # Plugins that are installed take most of the time to start.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(shards, "PYTEST", plain)
    monkeypatch.setattr(shards, "CHILDREN", tmp_path)
    return tmp_path


def test_a_sample_runs_to_its_end_and_goes_on_where_it_stopped(checkout, capsys):
    tests = shards.collect(checkout, ["unit"], "cpu")
    assert len(tests) == 6
    records = checkout / "records.jsonl"
    found = shards.run(checkout, tests, records, "cpu", size=6, limit=600)
    kinds = {test.partition("::")[2]: table.classify(record)[0] for test, record in found.items()}
    assert kinds == {
        "test_right": "passed", "test_left_out": "skipped", "test_fatal": "crashed", "test_refused": "refused",
        "test_text": "needs a GPU", "test_wrong": "failed",
    }  # fmt: skip
    size = records.stat().st_size
    assert shards.run(checkout, tests, records, "cpu", size=6, limit=600) == found
    assert records.stat().st_size == size
    text = table.written(found.values(), "make triton-tests")
    assert "| test_few.py | 6 | 1 | 1 | 1 | 1 | 0 | 1 | 0 | 1 |" in text
    assert "1 of 4 that ran and need no GPU passed (25.0%)." in text
    assert "| refused | tt.new | 1 | `test_refused` |" in text


def test_processes_at_once_find_the_same_as_one(checkout):
    tests = shards.collect(checkout, ["unit"], "cpu")
    found = shards.run(checkout, tests, checkout / "records.jsonl", "cpu", size=2, limit=600, jobs=3)
    outcomes = {test.partition("::")[2]: record["outcome"] for test, record in found.items()}
    assert outcomes == {
        "test_right": "passed", "test_left_out": "skipped", "test_fatal": "crashed", "test_refused": "failed",
        "test_text": "failed", "test_wrong": "failed",
    }  # fmt: skip
    assert not list(checkout.glob("*.part-*.jsonl"))


def test_a_run_that_was_stopped_has_records_of_what_ended(checkout):
    tests = shards.collect(checkout, ["unit"], "cpu")
    records = checkout / "records.jsonl"
    assert shards.run(checkout, tests, records, "cpu", size=6, limit=600, seconds=0) == {}
    part = checkout / "records.part-0.jsonl"
    lines = [{"test": tests[0], "outcome": "passed"}, {"test": tests[1], "outcome": "started"}]
    part.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert list(shards.run(checkout, tests, records, "cpu", size=6, limit=600, seconds=0)) == tests[:1]
    assert set(shards.run(checkout, tests, records, "cpu", size=6, limit=600)) == set(tests)


def test_what_cannot_be_collected_is_not_tried_for_ever(checkout):
    found = shards.run(checkout, ["unit/test_few.py::test_gone"], checkout / "records.jsonl", "cpu", 6, 600)
    assert [table.classify(record) for record in found.values()] == [("crashed", "not collected")]


def test_a_sample_depends_on_the_seed_alone():
    tests = [f"test_{number}" for number in range(100)]
    first = shards.draw_sample(tests, 10, 1)
    assert first == shards.draw_sample(tests, 10, 1) != shards.draw_sample(tests, 10, 2)
    assert len(first) == 10 and first == [test for test in tests if test in first]
    assert shards.draw_sample(tests, None, 1) == tests


@pytest.mark.skipif(not CHECKOUT.is_dir(), reason="make triton-tests has fetched no checkout of Triton")
def test_a_few_of_tritons_tests_pass(tmp_path):
    tests = shards.draw_sample(shards.collect(CHECKOUT, ["unit/language/test_standard.py"], "cpu"), 3, 0)
    found = shards.run(CHECKOUT, tests, tmp_path / "records.jsonl", "cpu", 10, 120)
    assert {table.classify(record)[0] for record in found.values()} <= {"passed", "skipped", "needs a GPU"}
