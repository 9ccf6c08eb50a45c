"""Is imported by the server of a judge's workers, after `fuzz.worker_server`: what nearly every judgement imports.

PyTorch imports these modules where a problem is run on tensors without memory, where its operations are counted, and
where the attributes that a solution may replace are listed: more than a second in each process.
"""

from __future__ import annotations

from importlib import import_module

from fuzz.worker_server import importing

with importing():
    for name in ("torch._dynamo", "torch.utils.benchmark", "torch.utils.flop_counter"):
        import_module(name)
