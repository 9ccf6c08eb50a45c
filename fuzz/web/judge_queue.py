"""Judges the submissions of the store in processes beside the service, each once, also where a service was killed."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fuzz.campaign.store import Store, Submission
from fuzz.errors import StoreError, describe_lack
from fuzz.files import temporary_folder
from fuzz.judge.batch.host import JudgeHost, Stopped
from fuzz.judge.batch.task import JudgeTask, TaskOptions, failure
from fuzz.judge.formats import FLASHINFER
from fuzz.judge.result.score import CRASHED
from fuzz.worker.system import process_fields, total_memory

LOOK_SECONDS, HEARTBEAT_SECONDS = 2.0, 5.0
"""Seconds between two looks for work, and between two signs of life of what runs."""
MAX_SILENCE = 120.0
"""Seconds without a sign of life after which a service on another machine has lost what it was judging."""
IDLE_SECONDS = 60.0
"""Seconds after which a process without work is ended: it holds PyTorch in memory."""
MAX_TRIES = 3
"""Services that may end while they judge a submission, before it is given up."""
RELEASED = {"state": "queued", "owner": ""}
"""The fields of a submission that somebody else is to judge."""


@dataclass
class JudgeQueue:
    """Takes submissions from the store, in as many threads as there are `workers`."""

    store: Store
    workers: int
    make_host: Callable[[], JudgeHost] = JudgeHost
    stopped: threading.Event = field(default_factory=threading.Event)
    work: threading.Event = field(default_factory=threading.Event)
    """Set where a submission has come."""
    owner: str = field(default_factory=lambda: own_name())
    threads: list[threading.Thread] = field(default_factory=list)
    unreleased: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Submissions that this service has given up, and their fields, which the store has not taken yet."""

    def start(self) -> None:
        # A host ends with the thread that started it.
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(self.workers)]
        for thread in self.threads:
            thread.start()

    def close(self) -> None:
        """Ends what runs, which waits in the store for the next service."""
        self.stopped.set()
        self.work.set()
        for thread in self.threads:
            thread.join()

    def _run(self) -> None:
        idle_since = time.monotonic()
        with closing(self.make_host()) as host:
            while not self.stopped.is_set():
                try:
                    if self._judge_next(host):
                        idle_since = time.monotonic()
                        continue
                except (StoreError, OSError):
                    # The store does not answer, or the machine lacks something; the process may hold some of it.
                    host.close()
                if time.monotonic() - idle_since > IDLE_SECONDS:
                    host.close()
                self.work.wait(LOOK_SECONDS)
                self.work.clear()

    def _judge_next(self, host: JudgeHost) -> bool:
        """Judges one submission; whether there was one."""
        self.release_lost()
        taken = self.store.take_submission(self.owner, time.time())
        if taken is None:
            return False
        try:
            judgement = self._judge(host, taken)
            result = {"verdict": judgement["verdict"], "judgement": json.dumps(judgement), "updated": time.time()}
            self.store.update_submission(taken.id, self.owner, state="judged", **result)
        except Stopped:
            self._release(taken.id)
        except BaseException as error:
            # What the machine lacks for now is no fault of the submission.
            self._release(taken.id, **({"tries": taken.tries - 1} if describe_lack(error) else {}))
            raise
        return True

    def _release(self, key: str, **more: Any) -> None:
        """Has a submission judged by somebody else; where the store does not answer, once it does."""
        self.unreleased[key] = {**RELEASED, **more}
        with suppress(StoreError):
            self.release_lost()

    def _judge(self, host: JudgeHost, taken: Submission) -> Mapping[str, Any]:
        if taken.tries > MAX_TRIES:
            # Its files are not written: it may be what cannot be done.
            task = name_task(taken, Path(), self.workers)
            return failure(task, f"{MAX_TRIES} services ended while they judged it", CRASHED)
        with temporary_folder("fuzz-submission-") as name:
            task = name_task(taken, Path(name), self.workers)
            write_files(taken, task)
            judgement = host.judge(task, partial(self._save_heartbeat, taken.id, [time.monotonic()]))
            # Paths of this folder mean nothing to who has sent it.
            cleaned: dict[str, Any] = json.loads(json.dumps(judgement).replace(json.dumps(f"{name}/")[1:-1], ""))
        return cleaned

    def _save_heartbeat(self, key: str, last: list[float]) -> bool:
        """Whether to stop; now and then a sign of life."""
        if time.monotonic() - last[0] > HEARTBEAT_SECONDS:
            last[0] = time.monotonic()
            # A store that does not answer for a while ends no judgement.
            with suppress(StoreError):
                self.store.update_submission(key, self.owner, updated=time.time())
        return self.stopped.is_set()

    def release_lost(self) -> None:
        """Has what a service was judging that is gone judged again, and what this one could not release before."""
        for key, fields in list(self.unreleased.items()):
            self.store.update_submission(key, self.owner, **fields)
            self.unreleased.pop(key, None)
        for submission in self.store.read(Submission, state="running"):
            if is_lost(submission):
                self.store.update_submission(submission.id, submission.owner, **RELEASED)


def name_task(submission: Submission, folder: Path, workers: int) -> JudgeTask:
    """What to judge of a submission whose files are below a folder."""
    ending = ".json" if submission.format == FLASHINFER else ".py"
    # Of its own folder a solution may import.
    solution = folder / "solution" / f"solution{ending}"
    files: dict[str, str] = json.loads(submission.problem)
    problem = folder / (f"problem{ending}" if "" in files else "problem")
    options = TaskOptions(submission.format, submission.backend, submission.seconds, submission.seed, submission.memory)
    share = max(total_memory() // (4 * workers), 1 << 30)
    return JudgeTask(options, str(problem) if files else "", str(solution), share)


def write_files(submission: Submission, task: JudgeTask) -> None:
    """Writes a submission's files where its task has them."""
    solution, problem = Path(task.solution), Path(task.problem)
    solution.parent.mkdir()
    solution.write_text(submission.solution, encoding="utf-8")
    files: dict[str, str] = json.loads(submission.problem)
    if "" in files:
        problem.write_text(files[""], encoding="utf-8")
    elif files:
        problem.mkdir()
        for name, text in files.items():
            (problem / name).write_text(text, encoding="utf-8")


def own_name() -> str:
    """Names this process among all of all machines: its machine, its number, and when it started."""
    return f"{socket.gethostname()} {os.getpid()} {start_ticks(os.getpid())}"


def is_lost(submission: Submission) -> bool:
    """Whether the process that judges a submission is gone."""
    host, _, rest = submission.owner.partition(" ")
    pid, _, ticks = rest.partition(" ")
    if host != socket.gethostname():
        return time.time() - submission.updated > MAX_SILENCE
    return not pid.isdecimal() or start_ticks(int(pid)) != ticks


def start_ticks(pid: int) -> str:
    """When a process started, by the machine's clock; empty where it is gone."""
    fields = process_fields(pid)
    return "" if not fields or fields[0] in "ZX" else fields[19]
