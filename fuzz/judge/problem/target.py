"""Makes a target in memory of a problem's description, so that cases of it are drawn, examined and shrunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz.judge.problem.description import OWN, ProblemDescription
from fuzz.model.case import Argument, Call
from fuzz.model.recipes import Recipe, Values, recipe
from fuzz.target.arguments import TensorArgument
from fuzz.target.spec import FLOATS, Target

MakeOwn = Callable[[str, Mapping[str, int], int], Values]
"""(argument, dims, seed) -> the values that the problem makes."""
OWN_RECIPES = ((1, "zeros"),)


@dataclass(frozen=True)
class OwnArgument(TensorArgument):
    """A tensor whose values only the problem itself can make: labels, masks, triangular matrices."""

    name: str = ""
    declared: Recipe | None = None
    make: MakeOwn | None = field(default=None, compare=False)
    made: dict[Values, tuple[int, dict[str, int]]] = field(default_factory=dict, compare=False)

    @property
    def recipes(self) -> tuple[tuple[int, str], ...]:
        return OWN_RECIPES

    def legal_values(self, value: Argument, call: Call) -> Values:
        """What the problem makes at these dims: by the seed of a recipe, or what it has made before."""
        if self.declared is not None:
            return self.declared
        dims = dict(call.dims)
        seed, made_at = self.made.get(value.values, (0, None))
        if self.make is None or made_at == dims:
            return value.values
        if isinstance(value.values, Recipe):
            seed = value.values.seed
        values = self.make(self.name, dims, seed)
        self.made[values] = seed, dims
        return values


def make_target(
    description: ProblemDescription,
    compute: Callable[..., Mapping[str, Any]] | None = None,
    launcher: Callable[..., Mapping[str, Any]] | None = None,
    make: MakeOwn | None = None,
    dtypes: tuple[str, ...] = FLOATS[:1],
    *,
    backward: bool = False,
    is_stated: bool = False,
) -> Target:
    """The target of a problem. `compute` evaluates it, `launcher` runs a solution, `make` makes the problem's values.

    Each is given where the process has it. `dtypes` are those that floating arguments are drawn in. With `backward` it
    is differentiated, `is_stated` says that the problem states the dtypes of the cases.
    """
    tensors: dict[str, TensorArgument] = {}
    for name, one in description.arguments.items():
        # A problem that states a dtype of 16 or 64 bits means it.
        free = one.dtype == FLOATS[0] or one.dtype in FLOATS and description.stated_dtypes.issuperset(dtypes)
        own = dtypes if free else (one.dtype,)
        if one.domain == OWN:
            tensors[name] = OwnArgument(one.shape, (one.dtype,), (), name, one.declared, make)
        else:
            tensors[name] = TensorArgument(one.shape, own)
    # In 16 bits, which a problem in float32 does not state, operations of PyTorch round one by one.
    halves = [one.dtype for one in description.arguments.values() if one.dtype in FLOATS[1:]]
    accumulate = FLOATS[0] if halves or is_stated else "inputs"
    dims = {size.name for size in description.sizes}
    fixed = {name: value for name, value in description.dims.items() if name not in dims}

    cotangents = {name: TensorArgument(one.shape, dtypes) for name, one in description.outputs.items() if backward}

    def reference(**arguments: Any) -> Mapping[str, Any]:
        assert compute is not None
        sizes = {**fixed, **{name: arguments.pop(name) for name in dims}}
        return compute(sizes, arguments)

    return Target(
        description.name, launcher or refuse, Path(description.name), description.sizes, tensors, {},
        {name: name for name in dims}, reference, layout="envelope", dot=description.dot,
        in_place=dict.fromkeys(description.in_place, ""), accumulate=accumulate, cotangents=cotangents,
        timeout=20.0,
    )  # fmt: skip


def refuse(**arguments: Any) -> Mapping[str, Any]:
    """Stands for a launcher in a process that has none."""
    raise RuntimeError("the solution runs in a process of its own")


def declared_argument(description: ProblemDescription, name: str, dtype: str, seed: int) -> Argument:
    """An argument with values as the problem makes them, before `legal_values` fills in what only it can make."""
    one = description.arguments[name]
    values = one.declared.reseed(seed) if one.declared is not None else recipe("zeros", seed)
    return Argument(one.shape, dtype, values)
