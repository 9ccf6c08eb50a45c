"""Notify: a command of the user's is told of each new finding, as a JSON document on its standard input.

A run and a campaign tell the same document; docs/service.md tells every field.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fuzz.report.json import VERSION, finding_json
from fuzz.report.progress import Progress
from fuzz.run.fuzzer import Result
from fuzz.run.options import Run
from fuzz.target.spec import Target
from fuzz.triage.bug import Record

PATIENCE = 30.0
"""Seconds that a command may take."""


def notify(command: str, document: Mapping[str, Any]) -> str:
    """Runs the command by the shell with the document as its standard input; what went wrong, or nothing.

    Nothing of the document becomes part of the command. What it prints goes to standard error.
    """
    data = json.dumps(document, default=str, allow_nan=False).encode()
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command], stdin=subprocess.PIPE, stdout=sys.__stderr__, start_new_session=True
        )
    except OSError as error:
        return f"the notification command could not start: {error.strerror}"
    try:
        process.communicate(data, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"the notification command took more than {PATIENCE:g} s, and was ended"
    return f"the notification command ended with {process.returncode}" if process.returncode else ""


def document(event: str, *, campaign: str | None = None, **values: object) -> dict[str, object]:
    """What a command is told; `campaign` is the name of the campaign, None of a single run."""
    return {"version": VERSION, "event": event, "campaign": campaign, **values}


def told_finding(
    finding: Mapping[str, Any], target: str, planted: str | None, backend: str, seed: int, campaign: str | None = None
) -> dict[str, object]:
    """The document of one finding, which is as in ``fuzz run --json``."""
    where = {"target": target, "planted": planted, "backend": backend, "seed": seed}
    return document("finding", campaign=campaign, **where, finding=dict(finding))


@dataclass
class Notifying(Progress):
    """Progress that also tells a command of each new finding, once. A command that fails is a warning."""

    notification: str = ""
    run: Run | None = None
    backend: str = ""
    notified: list[Record] = field(default_factory=list)

    def started(self, run: Run, target: Target, backend: str) -> None:
        self.run, self.backend = run, backend
        super().started(run, target, backend)

    def shrunk(self, record: Record) -> None:
        super().shrunk(record)
        self.notify(record)

    def notify(self, record: Record) -> None:
        if not self.notification or self.run is None or record.known or any(one is record for one in self.notified):
            return
        self.notified.append(record)
        run = self.run
        told = told_finding(finding_json(record), str(run.target), run.planted, self.backend, run.seed)
        warning = notify(self.notification, told)
        if warning:
            self.console.print(f"warning: {warning}", highlight=False, markup=False)

    def ended(self, result: Result) -> None:
        """Tells of findings that the end of the run kept from being told."""
        for record in result.records:
            self.notify(record)


@dataclass
class Notifier:
    """Tells a campaign's command, beside what goes on; `say` hears of a command that fails.

    The process waits for what still runs when it ends, as long as a command may take.
    """

    command: str
    say: Callable[[str], None]

    def __call__(self, told: Mapping[str, Any]) -> None:
        if self.command:
            threading.Thread(target=self._tell, args=(told,)).start()

    def _tell(self, told: Mapping[str, Any]) -> None:
        warning = notify(self.command, told)
        if warning:
            self.say(f"warning: {warning}")
