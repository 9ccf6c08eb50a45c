"""Divides the processors of this machine among jobs that run at the same time."""

from __future__ import annotations

import os


def share_of(job: int, jobs: int) -> list[int]:
    """The processors of one job of so many, each with as many as the others; jobs share where there are too few.

    A run starts a process for each processor that it may use: beside other jobs they would wait for each other.
    """
    usable = sorted(os.sched_getaffinity(0))
    each = max(len(usable) // jobs, 1)
    return [usable[(job * each + place) % len(usable)] for place in range(each)]
