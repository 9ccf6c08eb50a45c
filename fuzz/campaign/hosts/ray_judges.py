"""Judges solutions on the nodes of a Ray cluster, each beside an actor, which holds a process that judges.

A node sees no file of the batch: those of a task travel with it, and lie there below a folder of the actor's own at the
paths that they have at the batch's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fuzz.campaign.hosts.ray_hosts import LONGEST_REASON, own_folder
from fuzz.errors import one_line
from fuzz.judge.batch.host import POLL_SECONDS, TRIES, JudgeHost, Stopped
from fuzz.judge.batch.task import JudgeTask, decode_task, encode_task, failure, moved
from fuzz.judge.result.score import CRASHED
from fuzz.text import clean_text
from fuzz.worker.system import total_memory

Document = Mapping[str, Any]


class JudgeActor:
    """Judges one task at a time on its node."""

    def __init__(self) -> None:
        folder, self.lock = own_folder()
        self.root = Path(folder)
        self.host = JudgeHost()

    def judge(self, data: bytes, files: Mapping[str, bytes]) -> bytes:
        """The judgement as JSON, with the paths of the batch."""
        task = decode_task(data)
        for name, content in files.items():
            path = Path(moved(name, self.root))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        # There may be as many actors as processors on this node, and each has two processes.
        share = max(total_memory() // (4 * (os.cpu_count() or 1)), 1 << 30)
        found = self.host.judge(replace(task.move_to(self.root), share=share))
        return json.dumps(found).encode().replace(str(self.root).encode(), b"")


@dataclass
class RayJudge:
    """Judges on a node of the cluster that is connected, by an actor that takes so many GPUs and CPUs, or shares."""

    gpus: float = 0.0
    cpus: float = 1.0
    _actor: Any = None

    def judge(self, task: JudgeTask, is_stopped: Callable[[], bool] = lambda: False) -> Document:
        """The judgement as JSON. Where the node is lost, another one judges the task. Raises Stopped."""
        import ray

        located, reason = task.locate(), ""
        files = {str(path): content for path, content in located.files()}
        for _ in range(TRIES):
            result = self._start().judge.remote(encode_task(located), files)
            while not ray.wait([result], timeout=POLL_SECONDS)[0]:
                if is_stopped():
                    self.close()
                    raise Stopped
            try:
                found: Document = json.loads(ray.get(result))
                return found
            except ray.exceptions.RayError as error:
                # An actor that Ray starts again may be asked, and fail, while it is on its way.
                self.close()
                reason = clean_text(one_line(error), LONGEST_REASON)
        return failure(task, reason, CRASHED)

    def _start(self) -> Any:
        """The actor, a new one where there is none; Ray chooses its node, and waits for one."""
        import ray

        if self._actor is None:
            options = {"num_gpus": self.gpus, "num_cpus": self.cpus, "scheduling_strategy": "SPREAD"}
            self._actor = ray.remote(**options)(JudgeActor).remote()
        return self._actor

    def close(self) -> None:
        """Ends the actor, and its process with it."""
        if self._actor is not None:
            import ray

            with suppress(Exception):
                ray.kill(self._actor)
        self._actor = None
