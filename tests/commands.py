"""The `fuzz` command in this process, which has imported what it needs already."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from fuzz import cli


@dataclass(frozen=True)
class Done:
    """Exit code, standard output and standard error of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which is one JSON value and nothing else."""
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line for a caller who got something wrong."""
        lines = self.err.splitlines()
        complaints = [line for line in lines if line.startswith("fuzz: ")]
        assert len(complaints) == 1 and lines[-1] == complaints[0], self.err
        assert "Traceback" not in self.err and self.out == "", self.out
        return complaints[0].removeprefix("fuzz: ")


def fuzz(*arguments: object) -> Done:
    """Runs the command."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = cli.exit_code([str(argument) for argument in arguments])
    return Done(code, out.getvalue(), err.getvalue())
