"""Runs attacks, each in a folder of its own, some side by side."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.attacks.attack import Attack, FellError, NotPossibleError
from benchmarks.attacks.left_over import check_files, check_processes, end_processes
from benchmarks.attacks.trial import Trial

HELD, FELL, NOT_POSSIBLE = "held", "fell", "not possible here"


@dataclass(frozen=True)
class Result:
    """What came of an attack: one of the three words above, why if it did not hold, and how many seconds it took."""

    attack: Attack
    state: str
    why: str
    seconds: float


@contextmanager
def attack_folder() -> Iterator[Path]:
    """A new folder with a short name, as the path of a socket has 107 characters; removed whatever its modes are."""
    folder = Path(tempfile.mkdtemp(prefix="fa-"))
    try:
        yield folder
    finally:
        for path, _, _ in os.walk(folder):
            os.chmod(path, 0o700)
        shutil.rmtree(folder, ignore_errors=True)


def make_attack(attack: Attack) -> Result:
    """Makes an attack. A mistake in the attack itself counts as one that fell, and says so."""
    start, state, why = time.monotonic(), HELD, ""
    with attack_folder() as folder:
        trial = Trial(folder, uuid.uuid4().hex)
        try:
            attack.run(trial)
            trial.end()
            check_processes(trial.marker, folder)
            check_files(folder)
        except NotPossibleError as error:
            state, why = NOT_POSSIBLE, str(error)
        except FellError as error:
            state, why = FELL, str(error)
        except Exception as error:
            state, why = FELL, f"the attack itself failed: {type(error).__name__}: {error}"
        finally:
            trial.end()
            end_processes(trial.marker, folder)
    return Result(attack, state, why, time.monotonic() - start)


def make_attacks(attacks: Sequence[Attack], jobs: int, show: Callable[[Result], None]) -> list[Result]:
    """Makes attacks, so many at once; `show` gets each result when it is there. Results in the order of the attacks."""

    def make(attack: Attack) -> Result:
        result = make_attack(attack)
        show(result)
        return result

    # A shell has what it starts in the background ignore Ctrl-C, which attacks send.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(make, attacks))
