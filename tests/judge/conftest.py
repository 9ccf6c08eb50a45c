"""What takes long in every judgement and is tested in one place."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from fuzz.judge import findings, stage_limits
from fuzz.judge.checks import many_calls
from fuzz.shrink.shrinker import Budget


@pytest.fixture(scope="session", autouse=True)
def few_calls() -> Iterator[None]:
    """Judgements make fewer calls of one shape, and all of those; test_many_calls.py makes them all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(many_calls, "TIMED", 6)
        patch.setattr(many_calls, "MANY", 10)
        patch.setattr(many_calls, "SECONDS", {False: 1e6, True: 1e6})
        yield


@pytest.fixture(scope="session", autouse=True)
def enough_time() -> Iterator[None]:
    """No stage of a judgement is cut off, however busy the machine is; test_stage_limits.py tests what happens then."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FIRST_CASES_SECONDS", "STAGE_SECONDS", "FINDING_SECONDS"):
            patch.setattr(stage_limits, name, 1e6)
        yield


@pytest.fixture(scope="session", autouse=True)
def few_steps() -> Iterator[None]:
    """What is found is shrunk and graded by a number of executions, not for seconds; tests of triage go to the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(findings, "Budget", partial(Budget, executions=100))
        yield
