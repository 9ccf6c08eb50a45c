"""Plots as image files: every format, and one line where the folder or the format is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.errors import UsageError
from fuzz.report.plotting.matplotlib_figure import check_plot_path, save_figure
from fuzz.report.plotting.plot_data import Line, Marker, Plot

TICKS = ((0.0, "0"), (1.0, "1"))
MARKERS, LINES = (Marker(0.5, 0.5, "wrong"),), (Line("truth", ((0.0, 0.0), (1.0, 1.0)), "truth"),)
PLOT = Plot("", "", "x", "y", TICKS, TICKS, MARKERS, LINES, (("wrong", "wrong sign"),))


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_plots_are_written_in_every_format(tmp_path: Path, suffix: str, magic: bytes) -> None:
    path = tmp_path / f"plot.{suffix}"
    check_plot_path(path)
    save_figure(path, "a title", [PLOT, PLOT])
    assert path.read_bytes().startswith(magic)


def test_a_plot_that_cannot_be_written_is_refused_before_any_work(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "plot.jpeg", "the name ends in"), (tmp_path / "no" / "plot.png", "no folder")):
        with pytest.raises(UsageError, match=message):
            check_plot_path(path)
