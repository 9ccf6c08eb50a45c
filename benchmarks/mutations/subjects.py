"""The kernels that are mutated: twenty good ones, each with the target that runs it."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

TARGETS = Path(__file__).parents[2] / "targets"


@dataclass(frozen=True)
class Subject:
    """A target, and where its kernels stand: a module of an installed library, or the target's own file."""

    target: str
    module: str = ""

    @property
    def root(self) -> Path:
        """The folder that is copied for a mutant."""
        if not self.module:
            return TARGETS
        spec = importlib.util.find_spec(self.module.partition(".")[0])
        if spec is None or not spec.submodule_search_locations:
            raise SystemExit(f"{self.module.partition('.')[0]} is not installed; install the extra [libraries]")
        return Path(spec.submodule_search_locations[0])

    @property
    def file(self) -> Path:
        """The file of its kernels."""
        if not self.module:
            return TARGETS / f"{self.target}.py"
        return self.root.joinpath(*self.module.split(".")[1:]).with_suffix(".py")

    @property
    def label(self) -> str:
        return self.target.replace("/", "_")


OWN = ("softmax", "rms_norm", "layernorm_bw", "layer_norm", "gelu_bw", "geglu", "swiglu", "matmul", "matmul_split_k",
       "cross_entropy", "cross_entropy_bw", "msda")  # fmt: skip
SUBJECTS = (
    *map(Subject, OWN),
    Subject("liger/layer_norm", "liger_kernel.ops.layer_norm"),
    Subject("liger/softmax", "liger_kernel.ops.softmax"),
    Subject("liger/dyt", "liger_kernel.ops.dyt"),
    Subject("liger/jsd", "liger_kernel.ops.jsd"),
    Subject("liger/poly_norm", "liger_kernel.ops.poly_norm"),
    Subject("fla/l2_norm", "fla.modules.norm.l2norm"),
    Subject("fla/local_cumsum", "fla.ops.utils.cumsum"),
    Subject("fla/token_shift", "fla.modules.token_shift"),
)
