"""What a plot worker says of an entry's case that it cannot run."""

from __future__ import annotations

import pytest

from fuzz.backends import backend
from fuzz.model.entry import Entry
from fuzz.model.outcome import NotRun, Outcome, OutOfMemory, Raised
from fuzz.target.spec import Target
from fuzz.web.entry_plots import worker
from fuzz.web.entry_plots.worker import PlotWorker
from fuzz.worker.protocol import WorkerConfig


@pytest.mark.parametrize(
    ("outcome", "failed"),
    [(NotRun("this machine is too slow"), True), (OutOfMemory("of 1 GiB"), True), (Raised("ValueError"), False)],
)
def test_what_a_full_machine_ended_may_give_plots_later(
    gelu: Target, entry: Entry, monkeypatch: pytest.MonkeyPatch, outcome: Outcome, failed: bool
) -> None:
    monkeypatch.setattr(worker, "run", lambda *_: outcome)
    drawn = PlotWorker(WorkerConfig("gelu_bw", None, "cpu"), gelu, gelu.launcher, backend("cpu"))
    result = drawn.measure(entry)
    assert result.failed == failed and result.why.startswith("nothing to draw: ")
