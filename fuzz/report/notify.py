"""Runs a command of the user's for each new finding, with a JSON document on its standard input.

A run and a campaign write the same document; docs/service.md explains every field.
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
from fuzz.report.progress import TerminalProgress
from fuzz.run.result import Result
from fuzz.triage.bug import Bug
from fuzz.worker.deadline import Deadline

COMMAND_SECONDS = 30.0
"""Seconds that a command may take."""
LEAST_SECONDS = 2.0
"""Seconds that it has even at the end of a run."""


def notify(command: str, document: Mapping[str, Any], seconds: float = COMMAND_SECONDS) -> str:
    """Runs the command by the shell with the document as its standard input; what went wrong, or nothing.

    It may take so many seconds. Nothing of the document becomes part of the command. What it prints goes to standard
    error.
    """
    data = json.dumps(document, default=str, allow_nan=False).encode()
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command], stdin=subprocess.PIPE, stdout=sys.__stderr__, start_new_session=True
        )
    except OSError as error:
        return f"the notification command could not start: {error.strerror}"
    try:
        process.communicate(data, timeout=seconds)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"the notification command took more than {seconds:.3g} s, and was ended"
    return f"the notification command ended with {process.returncode}" if process.returncode else ""


def event_document(event: str, *, campaign: str | None = None, **values: object) -> dict[str, object]:
    """What a command reads; `campaign` is the name of the campaign, None of a single run."""
    return {"version": VERSION, "event": event, "campaign": campaign, **values}


@dataclass
class NotifyingProgress(TerminalProgress):
    """Shows progress, and notifies a command of each new finding once. A command that fails is a warning."""

    notification: str = ""
    deadline: Deadline = field(default_factory=Deadline)
    notified: list[Bug] = field(default_factory=list)

    def on_triaged(self, bug: Bug) -> None:
        super().on_triaged(bug)
        self.notify(bug)

    def notify(self, bug: Bug) -> None:
        if not self.notification or self.options is None or bug.known or any(other is bug for other in self.notified):
            return
        self.notified.append(bug)
        options = self.options
        data = event_document(
            "finding", target=options.target, planted=options.planted, backend=self.backend, seed=options.seed,
            finding=finding_json(bug),
        )  # fmt: skip
        seconds = max(min(COMMAND_SECONDS, self.deadline.seconds_left), LEAST_SECONDS)
        if warning := notify(self.notification, data, seconds):
            self._print(f"warning: {warning}")

    def notify_rest(self, result: Result) -> None:
        """Notifies of the findings that the end of the run left out."""
        for bug in result.bugs:
            self.notify(bug)


@dataclass
class BackgroundNotifier:
    """Notifies a campaign's command, if any, in threads; `say` gets a warning where the command fails."""

    command: str
    say: Callable[[str], None]
    _threads: list[threading.Thread] = field(default_factory=list)

    def send(self, document: Mapping[str, Any]) -> None:
        """Starts the command with a document, and does not wait for its end."""
        if self.command:
            thread = threading.Thread(target=self._notify, args=(document,))
            thread.start()
            self._threads = [*(one for one in self._threads if one.is_alive()), thread]

    def _notify(self, document: Mapping[str, Any]) -> None:
        if warning := notify(self.command, document):
            self.say(f"warning: {warning}")

    def wait(self) -> None:
        """Waits until the commands that still run have ended, or have taken too long."""
        for thread in self._threads:
            thread.join()
