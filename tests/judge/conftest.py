"""What takes long in every judgement and is tested in one place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fuzz.judge import many_calls


@pytest.fixture(scope="session", autouse=True)
def few_calls() -> Iterator[None]:
    """Judgements end their many calls of one shape soon; test_many_calls.py makes them all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(many_calls, "SECONDS", {False: 0.5, True: 0.5})
        yield
