"""Campaigns on two Ray nodes started on this machine, one of which is killed. `make cluster` installs Ray first."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from services import nodes

from fuzz import corpus
from fuzz.campaign.store import Heartbeat, Store

FUZZ = str(Path(sys.executable).with_name("fuzz"))
MISTAKES = ("x * 2 + (x > 1)", "torch.where(x < -3, x, x * 2)", "x.abs() * 2", "x * 2 + (x == 0)")
HEAD = '''"""Functions with one mistake each."""
import torch
from fuzz import size, target, tensor

N = size("N", 1, 256)
ONE = dict(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x * 2))
'''
FUNCTION = """

@target(**ONE)
def wrong_{number}(x):
    return dict(y={mistake})
"""


def write_config(folder: Path, address: str) -> None:
    """A campaign over all mistakes by two workers."""
    functions = (FUNCTION.format(number=number, mistake=mistake) for number, mistake in enumerate(MISTAKES))
    (folder / "mine.py").write_text(HEAD + "".join(functions))
    paths = {"corpus": "corpus", "store": "sqlite:///store.sqlite", "folder": "state"}
    size = {"workers": 2, "slice": "8s", "budget": {"cases": 75 * len(MISTAKES)}, "memory": "4GiB"}
    values = {"targets": ["mine.py"], "cluster": "ray", "address": address, **size, **paths}
    (folder / "c.yaml").write_text(json.dumps(values))


def wait_for_hosts(process: subprocess.Popen[str], folder: Path) -> None:
    """Until both workers have a slice and a finding is saved."""
    until = time.monotonic() + 120
    with Store(f"sqlite:///{folder / 'store.sqlite'}") as store:
        while True:
            busy = [one for one in store.read(Heartbeat) if one.state == "busy"]
            if len(busy) == 2 and list(folder.glob("corpus/*/*.yaml")):
                return
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.1)


def test_a_node_that_is_killed_costs_its_slices_and_no_finding(tmp_path: Path) -> None:
    with nodes(1, 2) as cluster:
        write_config(tmp_path, cluster.address)
        command = [FUZZ, "campaign", "c.yaml", "--json"]
        with subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as running:
            wait_for_hosts(running, tmp_path)
            cluster.kill(0)
            out, stderr = running.communicate(timeout=200)
        assert running.returncode == 1, stderr
        result = json.loads(out)
    names = [f"wrong_{number}" for number in range(len(MISTAKES))]
    assert sorted(path.parent.name for path in corpus.entry_files([tmp_path / "corpus"])) == names, stderr
    assert sorted(finding["target"] for finding in result["findings"]) == names
    assert result["state"] == "finished" and result["cases"] >= 75 * len(MISTAKES)
    assert "ended (Actor" in stderr and sum(row["deaths"] for row in result["targets"]) >= 1
    assert not list(tmp_path.glob("state/*/journals/*")) and not list(tmp_path.glob("state/*/suspects/*"))
    assert not still_running(tmp_path)


def still_running(folder: Path) -> list[str]:
    """Hosts that outlive the cluster, after some seconds."""
    until = time.monotonic() + 120
    while True:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                line = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if b"fuzz.campaign.hosts.host_process" in line and b"fuzz-away-" in line:
                found.append(line.decode())
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.2)
