"""The `fuzz` command. Exit codes: 0 nothing found, 1 findings, 2 a usage error, 3 an internal error."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from functools import partial
from typing import NoReturn

from fuzz import target_code
from fuzz.cache import prune_cache, use_cache_folder
from fuzz.cli.console import complain, end_process, set_up_streams
from fuzz.cli.supervisor import note_end, supervise
from fuzz.errors import INTERNAL, USAGE, FuzzError, InternalError, UsageError, describe_lack, one_line, os_errors_as
from fuzz.worker.system import remove_server_folder

NEW_OBJECTS = 50_000
"""New objects after which Python looks for garbage: after 700, as it does by itself, imports take a sixth longer."""


INTERRUPTED = 130
"""The exit code of a command that a Ctrl-C ends, but for a run, whose results it has."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Runs the command line and exits."""
    if arguments is None:
        use_utf8()
    gc.set_threshold(NEW_OBJECTS)
    set_up_streams()
    target_code.prepare_with(partial(supervise, complain))
    code = exit_code(sys.argv[1:] if arguments is None else arguments)
    note_end(code)
    # There is nothing left that a further Ctrl-C could end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    remove_server_folder()
    atexit._run_exitfuncs()
    # What is wrong with its settings was said at the beginning.
    with suppress(FuzzError):
        prune_cache()
    end_process(code)


def use_utf8() -> None:
    """Starts this Python again in UTF-8 mode where the locale has another encoding, for it and what it starts.

    Names of files, which entries and databases hold as text, are UTF-8; what is printed keeps the locale's encoding.
    """
    if sys.flags.utf8_mode or sys.getfilesystemencoding() == "utf-8":
        return
    if sys.stderr is not None:
        os.environ.setdefault("PYTHONIOENCODING", sys.stderr.encoding)
    os.environ["PYTHONUTF8"] = "1"
    os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def exit_code(arguments: list[str]) -> int:
    """Runs the command line; returns the exit code."""
    try:
        with os_errors_as(UsageError, "the working folder cannot be used"):
            os.getcwd()
        use_cache_folder()
        from fuzz.cli.app import app

        code = int(app(arguments, standalone_mode=False, prog_name="fuzz") or 0)
        sys.stdout.flush()
        # Typer makes this code of a Ctrl-C.
        if code == INTERRUPTED:
            complain("interrupted")
        return code
    except FuzzError as error:
        # Who has closed a pipe, as head does, has read enough.
        if not isinstance(error.__context__, BrokenPipeError):
            complain(one_line(error))
        return USAGE
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except InternalError as error:
        complain(f"internal error in a worker\n{error}")
        return INTERNAL
    except Exception as error:
        # Errors of the command line itself tell their exit code, whichever copy of click they come from.
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            if message := error.format_message():
                complain(message)
            return USAGE
        if lacking := describe_lack(error):
            complain(f"this machine, or a limit of this process, gives too little: {lacking}")
            return USAGE
        complain("internal error\n" + traceback.format_exc())
        return INTERNAL
