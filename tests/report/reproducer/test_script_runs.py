"""For every oracle and symptom the script fails with the planted kernel and passes with the good one, run alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from programs import run_programs

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
    ("both", "wrong_first", "autograd", "output"),
    ("both", "fails_first", "autograd", "raised"),
    ("steep", "triple", "autograd", "output"),
    ("scaled", "no_grad", "autograd", "no-grad"),
    ("scaled", "spoils_what_it_saved", "autograd", "twice"),
    ("scaled", "keeps", "autograd", "saved"),
    ("scaled", "last_call", "autograd", "between"),
    ("scaled", "accepts", "rejects", "accepted"),
    ("plain", "wrong", "accuracy", "value"),
    ("plain", "unwritten", "bounds", "unwritten"),
    ("plain", "keeps_its_output", "mutation", "overwritten"),
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


def programs(known: dict[tuple[str, str, str, str], Finding]) -> Iterator[str]:
    """For each finding the script with the planted kernel, then the one with the good one."""
    for key in [*FOUND, *known]:
        name, plant, oracle, symptom = key
        target = load(f"{TOYS}:{name}")
        case = case_of(target, oracle)
        if symptom == "overwritten":
            other = replace(case.last.arguments["x"], values=recipe("normal", 9))
            case = replace(case, calls=(case.last.with_argument("x", other), case.last))
        found = known.get(key) or finding_of(target, plant, case, oracle)
        assert (found.oracle, found.symptom) == (oracle, symptom), found
        entry = Entry(case, found, planted=plant, provenance=Provenance(backend="cpu"))
        for chosen in (load_planted(target, plant)[0], None):
            yield script(entry, target, chosen, "fuzz replay x")


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, str, str], tuple[int, int]]:
    """What each pair of scripts ends with."""
    known = {(target, plant, found.oracle, found.symptom): found for target, plant, found in TOLD}
    ended = run_programs(tmp_path_factory.mktemp("alone"), programs(known))
    pairs = zip(ended[::2], ended[1::2], strict=True)
    return {key: (bad.code, good.code) for key, (bad, good) in zip([*FOUND, *known], pairs, strict=True)}


@pytest.mark.parametrize("key", [*FOUND, *((name, plant, found.oracle, found.symptom) for name, plant, found in TOLD)])
def test_a_script_tells_the_planted_kernel_from_the_good_one(
    key: tuple[str, str, str, str], codes: dict[tuple[str, str, str, str], tuple[int, int]]
) -> None:
    assert codes[key] == (1, 0)
