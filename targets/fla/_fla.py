"""fla-core under the names of its newest release, whatever release is installed.

An older release has some modules elsewhere; what it lacks altogether is refused, as an input is.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial, update_wrapper
from typing import Any

# What the library gives to torch.compile are no kernels of its own; torch reads this when dynamo is imported.
os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")
if "torch._dynamo.config" in sys.modules:
    sys.modules["torch._dynamo.config"].disable = os.environ["TORCH_COMPILE_DISABLE"] == "1"

import fla  # noqa: E402, F401  Where the extra is missing, no target of this folder can be loaded.
import torch  # noqa: E402

from fuzz import target  # noqa: E402

if not hasattr(torch.cpu, "device"):
    # Older releases enter the device of every tensor, which is the CPU's on the cpu backend.
    torch.cpu.device = lambda device: nullcontext()

ELSEWHERE = {
    "modules.norm.fused_norm_gate": "modules.fused_norm_gate",
    "modules.norm.layernorm": "modules.layernorm",
    "modules.norm.l2norm": "modules.l2norm",
    "modules.causal_conv1d": "modules.conv.causal_conv1d",
    "modules.rotary.ops": "modules.rotary",
}
"""Where releases before 0.6 have a module."""

DEVICE, OLDER = "what another device, its shared memory or another Triton asks for", "the newest release has it"
COMMON = "what operations share: other operations, and targets of its own, run the rest"
SERVERS = "servers call the forward by itself for that, and no function that is documented does"
CHUNKS = "what users call prepares the chunks for what it calls"
UNREACHED = {
    **dict.fromkeys(
        ("*CONTINUOUS_BATCHING*", "*SPEC_DECODING*", "*INPLACE_FINAL*", "*inplace_final*", "*ssm_state*"), SERVERS
    ),
    **dict.fromkeys(
        (
            "*check_shared_mem*",
            "*IS_AMD*",
            "*IS_INTEL*",
            "*IS_N[PV]*",
            "*IS_GATHER*",
            "*TRITON_ABOVE*",
            "*triton.__version__*",
        ),
        DEVICE,
    ),
    **dict.fromkeys(
        ("*USE_TMA*", "*IS_TMA*", "*USE_PDL*", "*use_pdl*", "*is_compiling()*", "*_DEBUG_ASSERTS*"), DEVICE
    ),
    "fla/utils/*:*": DEVICE + ", or what its decorators do for other operations",
    "*mesa_net_h_kv_bwd_intra_*": "the one kernel for all of it needs the shared memory of another device",
    "fla/backends.py:*": "no implementation for another device or by another compiler is installed",
    **dict.fromkeys(("fla/ops/*/backends/*:*", "fla/modules/*/backends/*:*"), DEVICE),
    "fla/ops/utils/cache.py:*": "tuned configurations are kept where the environment asks for it",
    **dict.fromkeys(("*use_graph*", "*USE_GRAPH*", "fla/ops/utils/graph.py:*"), "there are no graphs of a CPU"),
    **dict.fromkeys(("fla/ops/cp/*:*", "*cp_context*"), "sequences spread over devices are not drawn"),
    **dict.fromkeys(
        ("*chunk_indices is None and cu_seqlens*", "*cu_seqlens is not None and chunk_indices is None*"), CHUNKS
    ),
    "*GATHER_SUPPORTED*": "Triton gathers, whatever the device",
    "*'transpose_state_layout' in kwargs*": "an older name of state_v_first",
    "*'head_first' in kwargs*": "this release refuses it, as no refusal that is known by its kind",
    "targets/fla/_*:*": OLDER + ", or another target calls it",
}
"""Why parts of the library cannot be reached, beside what a target says of its own."""
WIDE = dict.fromkeys(
    ("*chunk_gla_fwd_A_kernel_intra_sub_intra_*", "*chunk_gla_fwd_intra_gk: `K <= 256`*"),
    "fla_chunk_gla_wide has keys as wide",
)  # fmt: skip
"""What wide keys alone reach."""
SHARED = dict.fromkeys(("fla/ops/utils/*:*", "fla/ops/common/*:*", "fla/modules/norm/l2norm.py:*"), COMMON)
"""What operations share."""


def flash(**declaration: Any) -> Callable[..., Any]:
    """Declares a target of the library: it promises no bits for other layouts, which it copies or walks otherwise.

    What operations share is left to those that it is made for, but where a target says itself what is unreached. Its
    `imports` are what `fla.ops` and `fla.modules` do not import themselves.
    """
    unreached = {**UNREACHED, **declaration.pop("unreached", {**SHARED, **WIDE})}
    imports = ("fla.ops", "fla.modules", *declaration.pop("imports", ()))
    return target(**{"layout": "envelope", "imports": imports, "unreached": unreached, **declaration})


def found(place: str) -> Any:
    """The object that ``module:name`` is in fla, which takes time before heads.

    NotImplementedError where this release lacks it.
    """
    module, _, name = place.partition(":")
    for path in (module, ELSEWHERE.get(module, module)):
        try:
            return time_first(getattr(importlib.import_module(f"fla.{path}"), name))
        except (ModuleNotFoundError, AttributeError):
            continue
    raise NotImplementedError(f"this release of fla-core has no {place}")


def time_first(function: Any) -> Any:
    """A function that takes time before heads, also where its default is `head_first=True`."""
    given = inspect.signature(function).parameters.get("head_first") if inspect.isfunction(function) else None
    if given is None or given.default is not True:
        return function
    return update_wrapper(partial(function, head_first=False), function)


def takes(place: str, name: str) -> None:
    """NotImplementedError where a function has, and documents, no argument of that name: some swallow any by **kwargs."""
    function = found(place)
    if name not in inspect.signature(function).parameters and name not in (function.__doc__ or ""):
        raise NotImplementedError(f"this release of fla-core has no argument {name} in {place}")


def documents(place: str, term: str) -> None:
    """NotImplementedError where this release's documents of a function do not name what is asked of it."""
    if term not in (found(place).__doc__ or ""):
        raise NotImplementedError(f"this release of fla-core documents no {term} in {place}")


def checks(place: str, condition: str) -> None:
    """NotImplementedError where no code of a function's module checks a condition: its callers have to see to it then."""
    if condition not in inspect.getsource(importlib.import_module(found(place).__module__)):
        raise NotImplementedError(f"this release of fla-core checks no {condition} in {place}")


def uncompiled(place: str) -> None:
    """Takes a module's function as it was before torch.compile, which insists on compiling some of them."""
    function = found(place)
    module = importlib.import_module(f"fla.{place.partition(':')[0]}")
    setattr(module, function.__name__, getattr(function, "_torchdynamo_orig_callable", function))


def one_dtype(*tensors: torch.Tensor | None) -> None:
    """TypeError where the tensors, of which some may be None, are not of one dtype."""
    if len({tensor.dtype for tensor in tensors if tensor is not None}) > 1:
        raise TypeError("the tensors need one dtype")
