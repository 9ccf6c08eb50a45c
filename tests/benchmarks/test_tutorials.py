"""Triton's tutorials: what is counted, what is left out, and how one that fails is told."""

import json

import pytest
import torch

from benchmarks.tutorials import __main__ as tutorials
from benchmarks.tutorials import child

RIGHT = """
import torch, triton
print("The maximum difference between torch and triton is 0.0")
assert torch.allclose(torch.ones(2), torch.ones(2))

@triton.testing.perf_report(triton.testing.Benchmark(
    x_names=["size"], x_vals=[1, 2, 3], line_arg="who", line_vals=["a"], line_names=["a"], plot_name="", args={}))
def measured(size, who):
    assert size == 1
    return triton.testing.do_bench(lambda: None)
"""
WRONG = """
import torch
x = torch.randn(3, 2048, dtype=torch.float16, requires_grad=True)
weight = torch.ones(2048, dtype=torch.float16)
y = torch.nn.functional.layer_norm(x, (2048,), weight)
assert torch.allclose(y, torch.nn.functional.layer_norm(x.double(), (2048,), weight.double()).half(), atol=0, rtol=0)
assert torch.allclose(torch.ones(2), torch.zeros(2)), "not the same"
"""


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "python/tutorials"
    folder.mkdir(parents=True)
    (folder / "01-right.py").write_text(RIGHT)
    (folder / "05-wrong.py").write_text(WRONG)
    return tmp_path


def test_comparisons_are_counted_and_what_is_printed_is_one(checkout):
    found = child.outcome(checkout / "python/tutorials/01-right.py", points=1, work=0)
    assert (found["right"], found["wrong"], found["error"]) == (2, 0, "")


def test_layer_norm_is_that_of_float64_and_a_wrong_comparison_ends_the_tutorial(checkout):
    found = child.outcome(checkout / "python/tutorials/05-wrong.py", points=1, work=0)
    assert (found["right"], found["wrong"], found["error"]) == (1, 1, "AssertionError: not the same")
    assert torch.nn.functional.layer_norm is child.layer_norm


def test_larger_cases_of_pytest_are_left_out():
    class Item:
        def __init__(self, length):
            self.callspec = self
            self.params = {"Z": 1, "H": 1, "N_CTX": length, "HEAD_DIM": 64}

    items = [Item(16), Item(1024)]
    plugin = child.Small(1e6)
    plugin.pytest_collection_modifyitems(items)
    assert [item.params["N_CTX"] for item in items] == [16]
    assert plugin.left_out == 1


def test_the_program_runs_each_in_a_process_and_writes_a_table(checkout, monkeypatch, capsys):
    document, out = checkout / "document.md", checkout / "out.jsonl"
    document.write_text("<!-- tutorials -->\n<!-- /tutorials -->\n")
    options = ["--source", str(checkout), "--write", str(document), "--out", str(out), "01", "05"]
    monkeypatch.setattr("sys.argv", ["tutorials", *options])
    with pytest.raises(SystemExit) as stopped:
        tutorials.main()
    assert stopped.value.code == 1
    text = document.read_text()
    assert "| 01-right | yes | 2 | 0 |  |" in text
    assert "| 05-wrong | AssertionError: not the same | 1 | 1 |  |" in text
    assert [json.loads(line)["tutorial"] for line in out.read_text().splitlines()] == ["01-right", "05-wrong"]


def test_a_tutorial_that_is_not_there_is_named(checkout):
    with pytest.raises(SystemExit, match="has no tutorial 02"):
        tutorials.files(checkout, ["01", "02"])
