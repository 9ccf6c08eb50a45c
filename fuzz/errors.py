"""Defines the exceptions that a person is meant to read.

    FuzzError                   anything this package reports in one line
    ├── Unadjudicated           no exact value of a reference, and why
    └── UsageError              the caller's input is wrong: exit code 2
        ├── TargetError         a target file, or what it declares
        │   └── ReferenceFailedError    its reference raises where a case is examined
        ├── BackendError        a backend that is unknown or cannot run here
        ├── CorpusError         a corpus folder or entry
        ├── WorkerStartError    a worker that this machine could not start
        └── StoreError          a database that cannot be opened, read or written
            └── RefusedWrite    a write that a database refuses for its content

Everything else that escapes is an internal error: it keeps its traceback and ends with exit code 3. InternalError is
one of a worker.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from fuzz.escaping import clean_text

USAGE, INTERNAL = 2, 3
"""The exit codes of the command: what a person gave is wrong, or could not be used in part; an internal error."""
LACKS = {errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM}
"""Errors of the system for what there is too little of: files, room on disks, memory."""
UNMAPPED = "failed to map segment"
"""What the loader of libraries says where there are too few addresses for one."""


class FuzzError(Exception):
    """Base of every error that is reported as one clear line."""


class UsageError(FuzzError):
    """Something the caller gave is wrong; the message names it and says what would be right."""


class InternalError(Exception):
    """A worker's own code failed, which is no outcome of the kernel; holds its traceback."""


class TargetError(UsageError):
    """A target that is missing, cannot be loaded, or contradicts itself."""


class ReferenceFailedError(TargetError):
    """A target's reference that raises, in a process in which its launcher may have run before."""


class BackendError(UsageError):
    """A backend that does not exist or cannot run on this machine."""


class WorkerStartError(UsageError):
    """A worker that this machine could not start: it is too busy, or short of memory, and may not be later."""


class CorpusError(UsageError):
    """A corpus entry or folder that cannot be read or written."""


class StoreError(UsageError):
    """A campaign's database that cannot be opened, read or written."""


class RefusedWrite(StoreError):
    """A write that a database refuses for its content, now and at every later try."""


@contextmanager
def os_errors_as(kind: type[UsageError], text: str) -> Iterator[None]:
    """Raises an OSError as an error of this kind: the text, then what the system says."""
    try:
        yield
    except OSError as error:
        raise kind(f"{text}: {error.strerror}") from None


def message_of(error: BaseException) -> str:
    """The text of an error of whatever class; where making it raises another error, what that is."""
    try:
        return str(error)
    except Exception as failure:
        return f"its message cannot be made: {type(failure).__name__}"


def one_line(error: BaseException) -> str:
    """The error's message on one line, with its type where the message alone says too little."""
    text = " ".join(message_of(error).split())
    return clean_text(text if isinstance(error, FuzzError) else f"{type(error).__name__}: {text}".rstrip(": "))


def describe_lack(error: BaseException) -> str:
    """What the machine, or a limit of this process, did not give, of which the error came; empty where of nothing."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        unmapped = isinstance(cause, ImportError) and UNMAPPED in message_of(cause)
        if isinstance(cause, MemoryError) or unmapped or isinstance(cause, OSError) and cause.errno in LACKS:
            return one_line(cause)
        cause = cause.__cause__ or cause.__context__
    return ""


class Unadjudicated(FuzzError):
    """There is no exact value of a reference; the text is the reason."""
