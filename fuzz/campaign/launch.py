"""Launch: a campaign from its configuration: begun anew, or gone on with after any stop."""

from __future__ import annotations

import fcntl
import os
import secrets
import shlex
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from fuzz import corpus
from fuzz.campaign.config import CampaignConfig
from fuzz.campaign.coordinator import Conductor
from fuzz.campaign.local_hosts import Hosts, LocalHosts
from fuzz.campaign.ray_hosts import RayCarrier, connected
from fuzz.campaign.recorder import Recorder
from fuzz.campaign.remote_hosts import FarHosts
from fuzz.campaign.schedule import create_jobs
from fuzz.campaign.state import Ledger
from fuzz.campaign.store import Campaign, Store, rebuild
from fuzz.errors import CorpusError, UsageError
from fuzz.report.notify import CampaignNotifier, event_document
from fuzz.run import environment
from fuzz.worker.clock import Clock

Say = Callable[[str], None]


def launch(
    config: CampaignConfig, *, resume: bool, say: Say, clock: Clock | None = None, hosts: Hosts | None = None
) -> tuple[Ledger, str]:
    """Runs a campaign until its budget ends or it is stopped; its ledger, and ``finished`` or ``stopped``."""
    if reason := environment.unsupported():
        raise UsageError(reason)
    create_jobs(config, 0)
    local = config.cluster == "local" or hosts is not None
    with nullcontext() if local else connected(config.address, config.gpus_per_worker):
        return _launched(config, resume, say, clock or Clock(), hosts)


def _launched(config: CampaignConfig, resume: bool, say: Say, clock: Clock, hosts: Hosts | None) -> tuple[Ledger, str]:
    corpus.check_writable(Path(config.corpus))
    store = Store(config.store)
    campaign = _begun(store, config, clock, say) if not resume else _resumed(store, config, clock, say)
    ledger = Ledger(store, Recorder(store, clock, say), clock, campaign, create_jobs(config, campaign.id), say)
    ledger.recall()
    if campaign.state == "finished":
        say(f"campaign {campaign.id} has finished; a larger budget goes on, no --resume begins another")
        return ledger, "finished"
    with _alone(ledger.folder, config.name):
        # What an earlier stop, or another campaign, left in the corpus and not in the store.
        rebuilt = rebuild(store, ledger.corpus)
        if resume:
            ledger.adopt(rebuilt.added)
        notify = CampaignNotifier(shlex.join(config.notify), say)
        places = hosts or hosts_of(config, ledger.folder)
        say(f"campaign {campaign.id} ({config.name}): {len(ledger.lanes)} lanes, {config.workers} workers")
        state = Conductor(config, ledger, places, clock, say, notify).run()
        counts = {"cases": ledger.cases, "new": len(ledger.new), "known": len(ledger.known)}
        notify(event_document(state, campaign=config.name, **counts))
    return ledger, state


def hosts_of(config: CampaignConfig, folder: Path) -> Hosts:
    """Where the slices of a campaign run. UsageError where that cannot be reached."""
    if config.cluster == "local":
        return LocalHosts(folder)
    return FarHosts(RayCarrier(folder, config.gpus_per_worker, config.cpus_per_worker))


def _begun(store: Store, config: CampaignConfig, clock: Clock, say: Say) -> Campaign:
    host, folder = socket.gethostname(), str(Path(config.corpus).absolute())
    made = store.create_campaign(config.name, config.model_dump_json(), folder, clock.wall(), host, os.getpid())
    # The store's numbers begin anew with a new store, so that they alone do not tell campaigns apart.
    place = Path(config.folder).absolute() / f"{config.name}-{made.id}-{secrets.token_hex(3)}"
    made = replace(made, folder=str(place))
    store.save_campaign(made)
    return made


def _resumed(store: Store, config: CampaignConfig, clock: Clock, say: Say) -> Campaign:
    earlier = store.campaigns(name=config.name)
    if not earlier:
        say(f"there is no campaign {config.name!r} to resume; it begins")
        return _begun(store, config, clock, say)
    now = {"config": config.model_dump_json(), "host": socket.gethostname(), "pid": os.getpid()}
    if earlier[0].state == "finished" and earlier[0].config == now["config"]:
        return earlier[0]
    return replace(earlier[0], state="running", corpus=str(Path(config.corpus).absolute()), **now)  # type: ignore[arg-type]


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[None]:
    """Keeps two processes from running the same campaign; the lock ends with its process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise CorpusError(f"cannot write {folder}: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UsageError(f"campaign {name!r} is running already") from None
    try:
        yield
    finally:
        os.close(handle)
