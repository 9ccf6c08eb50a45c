"""Defines the requests to the processes that list what a module registers, and that find samples of an operation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

REGISTRATION_HANDLER = "fuzz.judge.ops.registrations:make_handler"
SAMPLE_HANDLER = "fuzz.judge.ops.samples:make_handler"


@dataclass(frozen=True)
class ListOperations:
    """To the process of a module: what it registers.

    The response is a tuple of (name, name of the operation of PyTorch to compare with, empty where there is none), or a
    Refusal. What other libraries define is known to that process alone.
    """

    path: Path


@dataclass(frozen=True)
class SampleConfig:
    """How the process that finds samples is set up: the folder that it writes them to, and how many it looks for.

    `most` are those of an operation in the first dtype that it takes, `most_others` those in each other one.
    """

    folder: Path
    most: int = 6
    most_others: int = 2


@dataclass(frozen=True)
class FindSamples:
    """To the process that finds samples: those of an operation. The response is a tuple of SampleFile, or a Refusal.

    `counterpart` is the operation of PyTorch that it is compared with.
    """

    operation: str
    counterpart: str


@dataclass(frozen=True)
class SampleFile:
    """Where a sample is kept, and the dtype of its first tensor."""

    path: Path
    dtype: str
