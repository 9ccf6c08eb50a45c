"""Starts a campaign from its configuration, anew or where it stopped, and runs it."""

from __future__ import annotations

import os
import secrets
import shlex
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from fuzz import corpus
from fuzz.campaign.config import CampaignConfig
from fuzz.campaign.coordinator import Coordinator
from fuzz.campaign.hosts.hosts import HOST_MODULE, Hosts
from fuzz.campaign.hosts.ray_process import RayProcess, ray_connection
from fuzz.campaign.hosts.remote_hosts import RemoteHosts
from fuzz.campaign.jobs import create_jobs
from fuzz.campaign.recorder import Recorder
from fuzz.campaign.state import CampaignState
from fuzz.campaign.store import Campaign, Store, rebuild
from fuzz.clock import Clock
from fuzz.errors import CorpusError, UsageError, os_errors_as
from fuzz.files import lock_folder
from fuzz.report.notify import BackgroundNotifier, event_document
from fuzz.run import environment

Say = Callable[[str], None]


def run_campaign(
    config: CampaignConfig, *, resume: bool, say: Say, clock: Clock | None = None, hosts: Hosts | None = None
) -> tuple[CampaignState, str]:
    """Runs a campaign until its budget ends or it is stopped; its state, and ``finished`` or ``stopped``.

    `say` gets lines for people. UsageError for what is wrong with the configuration or with this machine.
    """
    if reason := environment.unsupported_reason():
        raise UsageError(reason)
    create_jobs(config, 0)
    local = config.cluster == "local" or hosts is not None
    with nullcontext() if local else ray_connection(config.address, config.gpus_per_worker):
        return _run(config, resume, say, clock or Clock(), hosts)


def _run(
    config: CampaignConfig, resume: bool, say: Say, clock: Clock, hosts: Hosts | None
) -> tuple[CampaignState, str]:
    corpus.check_writable(Path(config.corpus))
    store = Store(config.store)
    found = _find(store, config, clock, say, resume=resume)
    with _lock(Path(found.folder), config.name), store.lock_campaign(found.id) as free:
        if not free:
            raise UsageError(f"campaign {config.name!r} is running already, with the same store")
        # Only now is what the store holds the last that another process has written of it.
        campaign = _take_up(store.find(Campaign, found.id) or found, config)
        jobs = create_jobs(config, campaign.id)
        state = CampaignState(store, Recorder(store, clock, say), clock, campaign, jobs, say)
        state.load()
        if campaign.state == "finished":
            say(f"campaign {campaign.id} has finished; a larger budget goes on, no --resume begins another")
            return state, "finished"
        # What an earlier stop, or another campaign, left in the corpus and not in the store.
        rebuilt = rebuild(store, state.corpus)
        for reason in rebuilt.unreadable:
            say(f"left out: {reason}")
        if resume:
            state.adopt(rebuilt.added)
        notifier = BackgroundNotifier(shlex.join(config.notify), say)
        if hosts is None and config.cluster == "local":
            hosts = Hosts(state.folder)
        launch = partial(RayProcess, HOST_MODULE, config.gpus_per_worker, config.cpus_per_worker)
        hosts = hosts or RemoteHosts(state.folder, launch)
        say(f"campaign {campaign.id} ({config.name}): {len(jobs)} jobs, {config.workers} workers")
        try:
            outcome = Coordinator(config, state, hosts, notifier.send).run()
            counts = {"cases": state.cases, "new": len(state.new), "known": len(state.known)}
            notifier.send(event_document(outcome, campaign=config.name, **counts))
        finally:
            # A supervisor ends what still runs some seconds after the command has its exit code.
            with suppress(KeyboardInterrupt):
                notifier.wait()
    return state, outcome


def _find(store: Store, config: CampaignConfig, clock: Clock, say: Say, *, resume: bool) -> Campaign:
    """The last campaign of this name, where it is to go on, or a new one."""
    last = next(iter(store.read(Campaign, name=config.name)), None) if resume else None
    if last is not None:
        return last
    if resume:
        say(f"there is no campaign {config.name!r} to resume; it begins")

    def name_folder(number: int) -> str:
        # The store's numbers begin anew with a new store, so that they alone do not tell campaigns apart.
        return str(Path(config.folder).absolute() / f"{config.name}-{number}-{secrets.token_hex(3)}")

    values = config.model_dump_json(), _corpus_folder(config), clock.wall(), socket.gethostname(), os.getpid()
    return store.create_campaign(config.name, *values, name_folder)


def _take_up(campaign: Campaign, config: CampaignConfig) -> Campaign:
    """A campaign as this process goes on with it: as it is where it has finished."""
    text, host = config.model_dump_json(), socket.gethostname()
    if campaign.state == "finished" and campaign.config == text:
        return campaign
    return replace(campaign, state="running", corpus=_corpus_folder(config), config=text, host=host, pid=os.getpid())


def _corpus_folder(config: CampaignConfig) -> str:
    return str(Path(config.corpus).absolute())


@contextmanager
def _lock(folder: Path, name: str) -> Iterator[None]:
    """Keeps two processes from running the same campaign; the lock ends with its process."""
    with ExitStack() as stack:
        with os_errors_as(CorpusError, f"cannot write {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                stack.enter_context(lock_folder(folder, wait=False))
            except BlockingIOError:
                raise UsageError(f"campaign {name!r} is running already") from None
        yield
