"""Examine: run one case in a worker and ask the oracles about it. The module that workers preload."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fuzz.backends import backend as named_backend
from fuzz.backends.execute import Fatal, run
from fuzz.finding import Finding, order
from fuzz.loader import load, planted
from fuzz.oracles import ALWAYS, SAMPLED
from fuzz.oracles.base import Examination
from fuzz.oracles.probe import check_precision
from fuzz.outcome import Returned
from fuzz.question import Question, Report, Setting, report_of
from fuzz.worker import Final


def service(setting: Setting) -> Callable[[Question], Report | Final]:
    """The worker's handler, question -> report."""
    torch.set_num_threads(1)
    target = load(setting.target)
    launcher = planted(target, setting.planted)[1] if setting.planted else target.launcher
    backend = named_backend(setting.backend)
    if not setting.planted:
        check_precision(target)

    def handle(question: Question) -> Report | Final:
        try:
            outcome = run(target, launcher, question.case.calls, backend)
            return examine(Examination(target, launcher, question.case, backend, outcome), question)
        except Fatal as fatal:
            return Final(report_of(fatal.outcome))

    return handle


def examine(exam: Examination, question: Question) -> Report:
    """Asks the oracles. Raises TargetError where the target contradicts itself."""
    if not isinstance(exam.outcome, Returned):
        return report_of(exam.outcome)
    findings: list[Finding] = []
    examined: list[str] = ["fault"]
    asked = [*ALWAYS, *(oracle for oracle in SAMPLED if oracle.name in question.sampled)]
    for oracle in asked:
        if not oracle.applies(exam.target, exam.case):
            continue
        examined.append(oracle.name)
        found = oracle.examine(exam)
        if found:
            findings.append(found)
            if not question.everything and oracle.name not in ("bounds", "mutation"):
                break
    findings.sort(key=order)
    return Report("returned", False, tuple(findings), tuple(examined), exam.worst)

