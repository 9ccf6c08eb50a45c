"""What an oracle asks for of replicas together is what it would ask for of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from fuzz.backends import backend, cpu
from fuzz.backends.cpu.backend import CpuBackend
from fuzz.model.case import Case
from fuzz.model.recipes.torch_values import to_bits
from fuzz.oracles import SAMPLED
from fuzz.oracles.base import Rerun
from fuzz.oracles.deterministic import Deterministic
from fuzz.oracles.examination import Examination
from fuzz.oracles.replicas import ReplicaRunner, Rerunning, key, structure, words_of
from fuzz.search.engines import RandomEngine
from fuzz.target.loader import load, load_planted

COUNT = 8
ORACLES = [oracle for oracle in SAMPLED if isinstance(oracle, Rerunning)]
Asked = dict[tuple[int, Any], tuple[object, Mapping[str, np.ndarray]]]


@pytest.fixture(autouse=True)
def active(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(CpuBackend, "prepare", lambda self, counters=False: None)
    with cpu.active():
        yield


def plans(name: str) -> list[Case]:
    engine = RandomEngine(load(name), 0)
    drawn = (engine.case(number) for number in range(300, 500))
    fitting = [plan for plan in drawn if plan.elements() < 600 and len(plan.calls) == 1]
    return [plan for plan in fitting if not any(value.layout.reach for value in plan.last.tensors.values())][:12]


def one_by_one(oracle: Any, exams: list[Examination]) -> Asked:
    found: Asked = {}
    for place, exam in enumerate(exams):
        asking = oracle.asks(exam)
        try:
            request: Rerun = next(asking)
            while True:
                call = request.call or exam.plan.last
                words = {name: words_of(exam, request, name) for name in call.tensors}
                found[place, key(request)] = structure(call), words
                request = asking.send(None)
        except StopIteration as end:
            assert end.value is None
    return found


def all_at_once(oracle: Any, exams: list[Examination]) -> Asked:
    found: Asked = {}
    for several in oracle.asks_together(exams):
        call = several.rerun.call or exams[0].plan.last
        for row, place in enumerate(several.places):
            words = {name: to_bits(several.values[name][row]) for name in call.tensors}
            found[place, key(several.rerun)] = structure(call), words
    return found


@pytest.mark.parametrize("name", ["layernorm_bw", "softmax", "gelu_bw", "rms_norm", "cross_entropy", "matmul"])
def test_together_the_same_is_asked_for_as_one_by_one(name: str) -> None:
    made, asked = load(name), set()
    for plan in plans(name):
        replicas = ReplicaRunner(made, made.launcher, backend("cpu"))
        exams = [exam for exam in replicas.run(plan, COUNT) if exam.stack][1:]
        for oracle in ORACLES:
            if not exams or not oracle.applies(made, plan):
                continue
            want, got = one_by_one(oracle, exams), all_at_once(oracle, exams)
            assert got.keys() == want.keys(), (oracle.name, plan)
            for which, (structured, words) in want.items():
                assert got[which][0] == structured
                for tensor, part in words.items():
                    assert np.array_equal(got[which][1][tensor], part), (oracle.name, tensor)
            asked |= {oracle.name} if want else set()
    assert {"deterministic"} < asked


@pytest.mark.parametrize("bug", ["", "atomic_order"])
def test_only_replicas_that_differ_are_asked_about_again(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    made, again, found = load("layernorm_bw"), [], []
    asks = Deterministic.asks
    monkeypatch.setattr(Deterministic, "asks", lambda self, exam: (again.append(exam), asks(self, exam))[1])
    launcher = load_planted(made, bug)[1] if bug else made.launcher
    for plan in plans("layernorm_bw"):
        replicas = ReplicaRunner(made, launcher, backend("cpu"))
        exams = [exam for exam in replicas.run(plan, COUNT) if exam.stack]
        found += replicas.ask(Deterministic(), exams) if exams else []
    # Floating addition in another order need not differ: some are told apart, some are not.
    assert sum(one is not None for one in found) == len(again)
    assert bool(again) == bool(bug) and len(again) < len(found)
