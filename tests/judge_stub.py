"""A judge host that judges nothing: its verdict is the solution's text."""

from __future__ import annotations

import sys
from functools import partial

from fuzz.judge.batch.host import JudgeHost
from fuzz.worker.python_process import start_isolated

STUB = """
import json, os, sys, time
from multiprocessing.connection import Connection
pipe = Connection(int(sys.argv[1]))
while True:
    try:
        task = json.loads(pipe.recv_bytes())
    except EOFError:
        break
    text = open(task["solution"]).read()
    if text == "ends":
        os._exit(3)
    if text == "hangs":
        time.sleep(600)
    finding = dict.fromkeys(("oracle", "symptom", "severity", "message", "diagnosis"), text) | {"case": [text]}
    found = {"verdict": text, "reason": "", "severity": None, "score": 1.0, "codes": [], "seconds": 0.1, "dims": {},
             "cases": 1, "calls": 1, "launches": 0, "kinds": [], "notes": [], "own_rule": None, "findings": [finding]}
    pipe.send_bytes(json.dumps(found).encode())
"""


def make_stub(further_seconds: float = 600.0) -> JudgeHost:
    return JudgeHost(partial(start_isolated, (sys.executable, "-c", STUB)), further_seconds=further_seconds)
