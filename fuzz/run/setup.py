"""Checks what a caller asks for before anything runs: the target, the backend and the folder of findings."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from fuzz import corpus
from fuzz.backends import BACKENDS, check_name
from fuzz.backends import backend as named_backend
from fuzz.backends.imports import quick_imports
from fuzz.errors import UsageError
from fuzz.run import environment
from fuzz.target.loader import BUILT_IN, LIBRARIES, load, load_planted, locate, module_name
from fuzz.target.spec import Target
from fuzz.target_code import prepare
from fuzz.worker.child.target_server import Traits, begin_loading
from fuzz.worker.deadline import Deadline
from fuzz.worker.protocol import LOADER, TRIAL, WorkerConfig
from fuzz.worker.system import ONE_THREAD, total_memory
from fuzz.worker.system import environment as environment_variables
from fuzz.worker.target_server import LoadedServer, TargetServer
from fuzz.worker.worker import Worker
from fuzz.worker.worker_process import START_SECONDS
from fuzz.worker.worker_server import fork_another_server, fork_server, preload

SERVER_MODULE = "fuzz.server_preload"
"""What the server of workers imports."""

_loaded: dict[tuple[str, str | None], LoadedServer] = {}
"""By target and planted bug, the forks of this process that have loaded it."""


def choose_backend(name: str) -> str:
    """The own name of a backend, which ``auto`` chooses. Raises BackendError where it cannot run here."""
    return named_backend(name).name


def start_worker_server(*more: str) -> None:
    """Starts the server that workers are forked from, which takes more than a second, in the background.

    `more` are modules that it imports besides what every worker needs.
    """
    preload(SERVER_MODULE, *more)


def fork_worker_server() -> bool:
    """Starts the same server as a fork of this process, for a command that loads targets itself: both need torch.

    Where torch is imported already, somebody else may have used it: then it is no fork. Whether it is one.
    """
    prepare()
    if "torch" in sys.modules:
        start_worker_server()
        return False
    fork_server(SERVER_MODULE)
    return True


def try_loading(path: Path) -> None:
    """Loads the file of a target in a process of its own, where this one has not loaded it. TargetError as by `load`.

    So a file that ends its process does not end a process that has more to do.
    """
    if module_name(path) not in sys.modules:
        with Worker(TRIAL, path, total_memory() // 2, START_SECONDS) as worker:
            worker.call(None)


def serve_target(config: WorkerConfig, memory: int, deadline: Deadline | None = None) -> TargetServer:
    """The server of the workers of one config, which loads the target once for them where the backend allows it."""
    origin = _loaded.get((config.target, config.planted))
    server = TargetServer(LOADER, config, memory, deadline or Deadline(), origin)
    if not BACKENDS[config.backend].forks_loaded_processes:
        server.give_up(f"the backend {config.backend} cannot be used after a fork")
    return server


def load_checked_target(target: str, planted: str | None, backend: str) -> Target:
    """The target, once everything that names it is known to exist. The server of workers is started before.

    Where workers may be forked from a process that has loaded the target, one is forked from this one, so that it is
    loaded once.

    Raises UsageError where this machine is not supported, BackendError or TargetError where a name is wrong.
    """
    check_name(backend)
    if reason := environment.unsupported_reason():
        raise UsageError(reason)
    locate(target)
    may_fork = fork_worker_server()
    chosen = BACKENDS[choose_backend(backend)]
    before = begin_loading()
    with environment_variables({**ONE_THREAD, **chosen.load_environment}), quick_imports():
        loaded = load(target)
        if planted:
            load_planted(loaded, planted)
    if may_fork and chosen.forks_loaded_processes and not before.difference(Traits.capture()):
        _loaded[target, planted] = LoadedServer(fork_another_server())
    return loaded


def findings_folder(target: Target, planted: str | None, folder: Path | None = None) -> Path:
    """The folder where findings are saved: the given one, or ``corpus`` beside the target's file.

    For built-in targets that is ``corpus`` beside their folder; for a planted bug it is a temporary folder, with a link
    to the target's file, so that later commands find the target of an entry there.
    """
    if folder is not None:
        return folder
    if planted:
        temporary = Path(tempfile.mkdtemp(prefix="fuzz-planted-"))
        (temporary / target.path.name).symlink_to(target.path)
        return temporary
    parent = target.path.parent
    if parent.parent == BUILT_IN and parent.name in LIBRARIES:
        parent = BUILT_IN
    return (parent.parent if parent == BUILT_IN else parent) / "corpus"


def writable_findings_folder(target: Target, planted: str | None, folder: Path | None = None) -> Path:
    """The same folder. Raises CorpusError where it cannot be written."""
    chosen = findings_folder(target, planted, folder)
    corpus.check_writable(chosen, target.name)
    return chosen
