"""Reports a launcher that raised, did not compile, or ran out of memory at a size that fits.

A death or a hang is seen from outside the worker, and filed under this oracle as well.
"""

from __future__ import annotations

from fuzz.model import oracle_specs
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.oracles.base import CaseOracle
from fuzz.oracles.execution.examination import Examination
from fuzz.oracles.script_check import FAILURE, SavedFinding, ScriptCheck
from fuzz.target.spec import Target

RUN = '''
def check():
    """Runs the call that raises."""
    try:
        run_call()
    except Exception as error:
        if failure(error):
            yield failure(error)
'''
RUN_IN_A_PROCESS = '''
def check():
    """Runs the call in a process of its own, which may end or hang."""
    import os
    import subprocess

    if sys.argv[1:] == ["--child"]:
        print("ready", flush=True)
        run_call()
        os._exit(0)
    command = [sys.executable, __file__, "--child"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        child.stdout.readline()
        try:
            code = child.wait(timeout=TIMEOUT)
            if code:
                yield f"the process ended with {code}"
        except subprocess.TimeoutExpired:
            child.kill()
            yield f"it does not return within {TIMEOUT:g} s"
'''


class FaultOracle(CaseOracle):
    spec = oracle_specs.FAULT

    def applies(self, target: Target, case: Case) -> bool:
        return True

    def check_case(self, exam: Examination) -> Finding | None:
        return None  # What did not return is no examination: the worker's report has the finding.

    def script_check(self, saved: SavedFinding) -> ScriptCheck:
        if saved.finding.symptom in ("died", "hung", "out-of-memory"):
            return ScriptCheck(RUN_IN_A_PROCESS, {"TIMEOUT": saved.target.timeout})
        return ScriptCheck(FAILURE + RUN)
