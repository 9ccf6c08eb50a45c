"""Gives templates what targets never tried, which may come from the JSON that `fuzz coverage` prints."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from fuzz.coverage_report.report import CoverageReport, read_report
from fuzz.errors import UsageError
from fuzz.files import read_file
from fuzz.report.plots.plot_data import Plot

LARGEST_FILE = 1 << 26
"""Bytes of the largest file of coverage that is read."""


@dataclass(frozen=True)
class CoverageView:
    """The reports of targets, and how coverage grew over a campaign's time, where it has several moments."""

    reports: tuple[CoverageReport, ...]
    plots: tuple[Plot, ...] = ()


def read_coverage_file(path: Path) -> CoverageView:
    """The reports in a file that ``fuzz coverage --json`` has written. UsageError where it is none."""
    try:
        value = json.loads(read_file(path, LARGEST_FILE))
        targets = value["targets"] if isinstance(value, dict) and "targets" in value else [value]
        return CoverageView(tuple(map(read_report, targets)))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"{path} holds nothing that fuzz coverage --json prints: {error}") from None
