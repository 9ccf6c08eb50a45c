"""Hosts of this machine: what they print is kept, in files of bounded size."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import pytest

from fuzz.campaign.hosts import hosts as hosts_module
from fuzz.campaign.hosts.hosts import Hosts
from fuzz.campaign.protocol import HostDied, HostEvent, Ready

SENDS_READY = """
from multiprocessing.connection import Connection
from fuzz.campaign.protocol import Ready, encode
pipe = Connection(int(sys.argv[1]))
pipe.send_bytes(encode(Ready()))
"""


def events_until_death(hosts: Hosts) -> list[HostEvent]:
    """What the hosts send until one ends."""
    events: list[HostEvent] = []
    until = time.monotonic() + 120
    while not any(isinstance(event, HostDied) for event in events):
        assert time.monotonic() < until
        events += [event for _, event in hosts.receive(1.0)]
    return events


def run_host(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[HostEvent]:
    """What a host sends that runs a program in place of a worker's."""
    monkeypatch.setattr(hosts_module, "HOST_COMMAND", (sys.executable, "-c", program))
    hosts = Hosts(folder)
    hosts.start(0)
    events = events_until_death(hosts)
    hosts.close()
    return events


def test_what_a_host_prints_fills_no_disk_and_its_last_words_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts_module, "LARGEST_LOG", 1 << 16)
    prints = "for _ in range(1000): print('x' * 10_000, file=sys.stderr)\nprint('the end', file=sys.stderr)"
    program = f"import sys\n{SENDS_READY}\n{prints}"
    assert run_host(program, tmp_path, monkeypatch) == [Ready(), HostDied("exit status 0")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["host-0.log", "host-0.log.1"]
    assert all(path.stat().st_size < 1 << 18 for path in tmp_path.iterdir())
    logs = (tmp_path / "host-0.log.1").read_bytes() + (tmp_path / "host-0.log").read_bytes()
    assert logs.endswith(b"x\nthe end\n")


def test_a_host_that_prints_to_a_full_disk_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "host-0.log").symlink_to("/dev/full")
    program = f"import sys\nsys.stdout.write('x' * 100_000)\nsys.stdout.flush()\n{SENDS_READY}"
    assert run_host(program, tmp_path, monkeypatch) == [Ready(), HostDied("exit status 0")]


def test_a_host_that_is_killed_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    program = (
        "import os, signal, sys\nfrom multiprocessing.util import get_temp_dir\n"
        "from fuzz.worker.python_process import connect_to_parent\n"
        "pipe = connect_to_parent(sys.argv[1])\nprint(get_temp_dir(), flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    assert run_host(program, tmp_path, monkeypatch) == [HostDied("SIGKILL")]
    assert (tmp_path / "host-0.log").read_text().startswith(str(temporary))
    assert not list(temporary.iterdir())
