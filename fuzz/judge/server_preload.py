"""Is imported by the server of a judge's workers, after `fuzz.server_preload`: what nearly every judgement imports.

PyTorch imports its modules where a problem is run on tensors without memory, where its operations are counted, and
where the attributes that a solution may replace are listed: more than a second in each process. The handlers of both
processes and the format that most problems have take a tenth of a second.
"""

from __future__ import annotations

from importlib import import_module

from fuzz.server_preload import importing

MODULES = (
    "torch._dynamo", "torch.utils.benchmark", "torch.utils.flop_counter", "numpy.testing",
    "fuzz.judge.processes.problem_worker", "fuzz.judge.processes.solution_worker",
    "fuzz.judge.formats.kernelbench", "fuzz.judge.formats.kernelbench_solution",
)  # fmt: skip

with importing():
    for name in MODULES:
        import_module(name)
