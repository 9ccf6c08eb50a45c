"""Keeps campaigns, statistics, findings and their occurrences in a database; the corpus stays the truth of findings.

`Store(url)` opens a store and makes or upgrades its tables; `close` or the end of a `with` closes it.
"""

from fuzz.campaign.store.rebuild import rebuild
from fuzz.campaign.store.store import Store
from fuzz.campaign.store.tables import (
    Campaign,
    Coverage,
    FindingRecord,
    Heartbeat,
    Job,
    Occurrence,
    Statistic,
    Submission,
)

__all__ = [
    "Campaign", "Coverage", "FindingRecord", "Heartbeat", "Job", "Occurrence", "Statistic", "Store", "Submission",
    "rebuild",
]  # fmt: skip
