"""Asks torch's function modes for the device of a tensor in functions under `torch.compile`, as torch does in others.

Dynamo, which traces such a function, asks them for methods only. Its guards on the stack of modes cover this as well.
"""

from __future__ import annotations

from typing import Any

from fuzz.backends.triton_host.patching import Patch
from fuzz.backends.triton_host.pretence.devices import DEVICE_OF


def patches() -> list[Patch]:
    """Those of `torch._dynamo`."""
    from torch._dynamo.variables import TensorVariable
    from torch._dynamo.variables.base import VariableTracker
    from torch._dynamo.variables.torch_function import can_dispatch_torch_function, dispatch_torch_function

    real_device = TensorVariable.method_attr_device

    def device(tensor: Any, tracer: Any) -> Any:
        if not can_dispatch_torch_function(tracer, (tensor,), {}):
            return real_device(tensor, tracer)
        return dispatch_torch_function(tracer, VariableTracker.build(tracer, DEVICE_OF), (tensor,), {})

    def is_cuda(tensor: Any, tracer: Any) -> Any:
        kind: str = device(tensor, tracer).as_python_constant().type
        return VariableTracker.build(tracer, kind == "cuda")

    return [
        Patch(TensorVariable, "method_attr_device", device),
        Patch(TensorVariable, "method_attr_is_cuda", is_cuda),
    ]
