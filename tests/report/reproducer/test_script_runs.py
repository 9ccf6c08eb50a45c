"""For every oracle and symptom the script fails with the planted kernel and passes with the good one, run alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz.backends import BACKENDS
from fuzz.backends.execute import run
from fuzz.model.case import Argument, Call, Case, Split
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.model.outcome import Returned
from fuzz.model.provenance import Provenance
from fuzz.model.recipes import recipe
from fuzz.oracles import find_oracle
from fuzz.oracles.execution.examination import Examination
from fuzz.report.reproducer.script import script
from fuzz.target.loader import load, load_planted
from fuzz.target.spec import Target

TOYS = Path(__file__).parent / "toys" / "toy_targets.py"
FOUND = [
    ("scaled", "wrong_gradient", "accuracy", "value"),
    ("scaled", "aliased", "mutation", "aliased"),
    ("scaled", "overwrites", "mutation", "written"),
    ("scaled", "overwrites", "autograd", "before"),
    ("scaled", "writes_its_gradient", "mutation", "written"),
    ("scaled", "writes_its_gradient", "autograd", "after"),
    ("scaled", "no_gradient", "autograd", "missing"),
    ("scaled", "raises", "autograd", "raised"),
    ("scaled", "wrong_alone", "autograd", "subset"),
    ("scaled", "no_grad", "autograd", "no-grad"),
    ("scaled", "spoils_what_it_saved", "autograd", "twice"),
    ("scaled", "keeps", "autograd", "saved"),
    ("scaled", "last_call", "autograd", "between"),
    ("scaled", "accepts", "rejects", "accepted"),
    ("plain", "wrong", "accuracy", "value"),
    ("plain", "unwritten", "bounds", "unwritten"),
    ("plain", "counts", "deterministic", "bits"),
    ("plain", "not_strided", "layout", "bits"),
    ("plain", "by_batch", "invariance", "bits"),
    ("plain", "by_place", "scaling", "permutation"),
    ("plain", "not_linear", "scaling", "scale"),
    ("differences", "drifts_by_layout", "layout", "drift"),
    ("differences", "drifts_by_batch", "invariance", "drift"),
    ("differences", "keeps_the_first", "scaling", "shift"),
    ("half", "third", "accuracy", "bits"),
]
TOLD = [
    ("scaled", "fails", Finding("fault", ("launcher",), "raised", "m")),
    ("plain", "dies", Finding("fault", ("launcher",), "died", "m")),
    ("plain", "hangs", Finding("fault", ("launcher",), "hung", "m")),
    ("plain", "wrong", Finding("parity", ("y",), "value", "m")),
    ("scaled", "overwrites", Finding("autograd", ("before_x",), "beside", "m")),
]
"""What ends the process, or is another backend's to see, stands here as the campaign would file it."""
RUNNER = """
import contextlib, io, os, runpy, sys
import torch, triton
from fuzz.backends import cpu
cpu.compiler()
torch.use_deterministic_algorithms(True, warn_only=True)
for path in sys.argv[1:]:
    child = os.fork()
    if child:
        print(path, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    sys.argv = [path]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(path, run_name="__main__")
    except SystemExit as error:
        os._exit(error.code)
    except BaseException as error:
        print(path, repr(error), file=sys.stderr, flush=True)
    os._exit(3)
"""
"""A process for each program, which has imported torch and triton already."""


def case_of(target: Target, oracle: str) -> Case:
    """3 rows of 4 in what layout and split the oracle looks at."""
    layout = Layout(order=(1, 0)) if oracle == "layout" else CONTIGUOUS
    values = "integers" if oracle == "scaling" else "normal"
    split = Split(1, 1, 2, 1) if oracle == "invariance" else None
    made = {
        name: Argument(
            value.shape, value.dtypes[0], recipe(values, seed), layout if len(value.shape) > 1 else CONTIGUOUS
        )
        for seed, (name, value) in enumerate({**target.tensors, **target.cotangents}.items(), 3)
    }
    arguments = {name: value for name, value in made.items() if name in target.tensors}
    cotangents = {name: value for name, value in made.items() if name in target.cotangents}
    options = {name: one.choices[0] for name, one in target.options.items()}
    dims = {dim.name: {"M": 3, "N": 4}.get(dim.name, 2) for dim in target.sizes}
    return Case(target.name, (Call(dims, arguments, options, cotangents),), split)


def finding_of(target: Target, plant: str, case: Case, name: str) -> Finding:
    """What the oracle says of the planted kernel."""
    launcher, backend = load_planted(target, plant)[1], BACKENDS["cpu"]
    exam = Examination(target, launcher, case, backend, run(target, launcher, case.calls, backend))
    assert isinstance(exam.outcome, Returned), exam.outcome
    (found,) = find_oracle(name).check([exam])
    assert found is not None
    return found


def programs(folder: Path) -> Iterator[tuple[tuple[str, str, str, str], list[Path]]]:
    """(what was found, its scripts with the planted kernel and with the good one)."""
    known = {(target, plant, found.oracle, found.symptom): found for target, plant, found in TOLD}
    for key in [*FOUND, *known]:
        name, plant, oracle, symptom = key
        target = load(f"{TOYS}:{name}")
        case = case_of(target, oracle)
        found = known.get(key) or finding_of(target, plant, case, oracle)
        assert (found.oracle, found.symptom) == (oracle, symptom), found
        entry = Entry(case, found, planted=plant, provenance=Provenance(backend="cpu"))
        paths = []
        for kind, chosen in (("bad", load_planted(target, plant)[0]), ("good", None)):
            paths.append(folder / f"{name}-{plant}-{oracle}-{symptom}-{kind}.py")
            paths[-1].write_text(script(entry, target, chosen, "fuzz replay x"), encoding="utf-8")
        yield key, paths


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, str, str], list[str]]:
    """What each pair of scripts ends with, all of them run in one process in a folder of their own."""
    folder = tmp_path_factory.mktemp("alone")
    made = dict(programs(folder))
    places = [str(path) for paths in made.values() for path in paths]
    command = [sys.executable, "-W", "error", "-c", RUNNER, *places]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300, check=False)
    ended = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert len(ended) == len(places) and not done.stderr, done.stderr
    return {key: [ended[str(path)] for path in paths] for key, paths in made.items()}


@pytest.mark.parametrize("key", [*FOUND, *((name, plant, found.oracle, found.symptom) for name, plant, found in TOLD)])
def test_a_script_tells_the_planted_kernel_from_the_good_one(
    key: tuple[str, str, str, str], codes: dict[tuple[str, str, str, str], list[str]]
) -> None:
    assert codes[key] == ["1", "0"]
