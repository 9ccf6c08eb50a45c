"""Declares a target: a kernel, its reference, its arguments over named dims, and what it promises, in one record."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fuzz.errors import TargetError
from fuzz.model.case import Call, Scalar
from fuzz.model.dims import Size, names
from fuzz.model.oracle_specs import ORACLE_NAMES
from fuzz.target.arguments import OptionArgument, TensorArgument, known_dtypes, listed
from fuzz.target.checks import check_declaration
from fuzz.target.contract import ENVELOPE, Contract, parse_contract
from fuzz.target.keywords import check_keywords
from fuzz.target.nonfinite import parse_nonfinite
from fuzz.target.shapes import Shape, Sizes

Launcher = Callable[..., Mapping[str, Any]]
FLOATS = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class PlantedBug:
    """A known mistake kept beside a good kernel: another launcher, or changes to the module's source text."""

    name: str
    oracle: str
    outputs: tuple[str, ...]
    meaning: str = ""
    launcher: Launcher | None = None
    changes: tuple[tuple[str, str], ...] = ()


@dataclass
class Target:
    """What the fuzzer knows of one kernel. Made by the `target` decorator; see docs/targets.md for every field."""

    name: str
    launcher: Launcher
    path: Path
    sizes: tuple[Size, ...]
    tensors: Mapping[str, TensorArgument]
    options: Mapping[str, OptionArgument]
    passed_sizes: Mapping[str, str]
    reference: Callable[..., Mapping[str, Any]] | None
    baseline: Launcher | None = None
    contract: Contract = ENVELOPE
    batch: str | None = None
    rows: Mapping[str, str] = field(default_factory=dict)
    invariance: str = "bitwise"
    layout: str = "envelope"
    range: str = "working"
    linear: tuple[str, ...] = ()
    shifts: tuple[str, ...] = ()
    cotangents: Mapping[str, TensorArgument] = field(default_factory=dict)
    accumulate: str = "float32"
    dot: str = "ieee"
    deterministic: bool = True
    nondeterminism: str = ""
    in_place: Mapping[str, str] = field(default_factory=dict)
    nonfinite: Mapping[str, int] = field(default_factory=dict)
    large: bool = False
    as_good_as: str = ""
    rejects: Mapping[str, Callable[..., Mapping[str, Any]]] = field(default_factory=dict)
    constants: tuple[float, ...] = ()
    timeout: float = 30.0
    exact: Callable[..., Mapping[str, Any]] | None = None
    seeds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unreached: Mapping[str, str] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    assumed_dtypes: frozenset[str] = frozenset()
    planted_bugs: dict[str, PlantedBug] = field(default_factory=dict)

    @property
    def differentiable(self) -> bool:
        """Whether the kernel is an autograd function whose gradients are compared as well."""
        return bool(self.cotangents)

    @property
    def runs(self) -> dict[str, Sizes]:
        """The runs of dims whose number varies, by name."""
        declared = (*self.tensors.values(), *self.cotangents.values())
        return {run.name: run for value in declared for run in value.runs}

    @cached_property
    def argument_shapes(self) -> tuple[Shape, ...]:
        """All shapes that its arguments may have, each once."""
        return tuple(dict.fromkeys(shape for declared in self.tensors.values() for shape in declared.shapes))

    @cached_property
    def cotangent_shapes(self) -> tuple[Shape, ...]:
        """All shapes that cotangents alone may have, each once."""
        shapes = dict.fromkeys(shape for declared in self.cotangents.values() for shape in declared.shapes)
        return tuple(shape for shape in shapes if shape not in self.argument_shapes)

    @cached_property
    def apart(self) -> Mapping[str, tuple[Size, ...]]:
        """For each dim those that no argument has together with it; none where cotangents say what outputs have."""
        if self.cotangents:
            return {dim.name: () for dim in self.sizes}
        together = [{name for text in shape for name in names(text)} for shape in self.argument_shapes]

        def meet(one: Size, other: Size) -> bool:
            return one is other or any({one.name, other.name} <= dims for dims in together)

        return {dim.name: tuple(other for other in self.sizes if not meet(dim, other)) for dim in self.sizes}

    @property
    def batch_dim(self) -> str | None:
        """The dim whose rows are independent: of all outputs, or of the first one that `rows` names."""
        return self.batch or next(iter(self.rows.values()), None)

    @property
    def doc(self) -> str:
        """The first line of what the author wrote about it."""
        module = inspect.getmodule(self.launcher)
        text = inspect.getdoc(self.launcher) or (module and module.__doc__) or ""
        return text.strip().splitlines()[0] if text.strip() else ""

    def promises(self) -> str:
        """Describes what the oracles check of it."""
        parts = [self._describe_values()] if self.reference or self.baseline else []
        parts.append("the same bits each time" if self.deterministic else f"not deterministic: {self.nondeterminism}")
        rows, limit = self.batch or ", ".join(self.rows), {"bitwise": "", "envelope": " beyond the envelope"}
        if rows:
            parts.append(f"rows of {rows} do not depend on their batch{limit[self.invariance]}")
        if self.reference or self.layout == "bitwise":
            parts.append(f"results do not depend on layouts{limit[self.layout]}")
        parts += [f"linear in {name}" for name in self.linear]
        parts += ["tensors of 2^31 elements and more"] if self.large else []
        parts += [f"the same when {name} is shifted" for name in self.shifts]
        written = [f"{name} where {option} is on" if option else name for name, option in self.in_place.items()]
        parts.append(f"writes over {', '.join(written)}" if written else "no input is written")
        parts += [f"refuses {name.replace('_', ' ')}" for name in self.rejects]
        return "; ".join(parts)

    def _describe_values(self) -> str:
        if self.contract.kind == "envelope":
            dtype = "the inputs' dtype's" if self.accumulate == "inputs" else self.accumulate
            less = ", or not much worse than eager PyTorch" if self.as_good_as else ""
            return f"inside the envelope of {dtype} arithmetic{less}"
        return "the bits of the baseline" if self.contract.kind == "bitwise" else str(self.contract)

    @property
    def defaults(self) -> Mapping[str, object]:
        """The plain dtype of each tensor and the default of each option, for the order of cases."""
        dtypes = {name: argument.dtypes[0] for name, argument in self.tensors.items()}
        return {**dtypes, **{name: option.choices[0] for name, option in self.options.items()}}

    def scalars(self, call: Call) -> dict[str, Scalar]:
        """What the launcher is called with beside a call's tensors: options, sizes, None for tensors that it lacks."""
        sizes = {name: call.dims[dim] for name, dim in self.passed_sizes.items()}
        return {**call.options, **sizes, **{name: None for name in self.tensors if name not in call.arguments}}

    def writable(self, call: Call) -> tuple[str, ...]:
        """The tensors that the launcher may write in a call: those that say so, or whose option is on."""
        return tuple(name for name, option in self.in_place.items() if not option or call.options.get(option))

    def requested_writes(self, call: Call) -> tuple[str, ...]:
        """The tensors that an option of the call tells the launcher to write."""
        return tuple(name for name, option in self.in_place.items() if option and call.options.get(option))

    def planted(
        self,
        name: str,
        *,
        oracle: str,
        outputs: Iterable[str],
        change: tuple[str, str] | Iterable[tuple[str, str]] = (),
        meaning: str = "",
    ) -> Callable[[Launcher], Launcher]:
        """Register a planted bug: decorate another launcher with it, or give `change`, pairs of (source text, mistake).

        Each text of `change` stands exactly once in the target's file. `oracle` and `outputs` say who must see it.
        Raises TargetError for an unknown oracle or a name that is taken.
        """
        if oracle not in ORACLE_NAMES:
            raise TargetError(f"planted bug {name!r}: unknown oracle {oracle!r}; known: {', '.join(ORACLE_NAMES)}")
        if name in self.planted_bugs:
            raise TargetError(f"{self.name} has a planted bug {name!r} already")
        changes = (change,) if isinstance(change, tuple) and change and isinstance(change[0], str) else tuple(change)
        planted_bug = PlantedBug(name, oracle, tuple(outputs), meaning, changes=changes)  # type: ignore[arg-type]
        self.planted_bugs[name] = planted_bug

        def register(launcher: Launcher) -> Launcher:
            doc = (inspect.getdoc(launcher) or meaning).strip()
            self.planted_bugs[name] = PlantedBug(name, oracle, planted_bug.outputs, doc, launcher=launcher)
            return launcher

        return register

    def __call__(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """Calls the launcher, as if it had not been decorated."""
        return self.launcher(*args, **kwargs)


_NOTED: ContextVar[list[Target] | None] = ContextVar("_NOTED", default=None)


@contextmanager
def noting_targets() -> Iterator[list[Target]]:
    """Yields a list to which each target is added that the block declares, also one that no name keeps."""
    declared: list[Target] = []
    token = _NOTED.set(declared)
    try:
        yield declared
    finally:
        _NOTED.reset(token)


def _note(target: Target) -> None:
    if (noted := _NOTED.get()) is not None:
        noted.append(target)


def ranks_of(call: Call, target: Target) -> dict[str, int]:
    """How many dims each run of dims has in a call; the fewest where no tensor has the run."""
    declared = {**target.tensors, **{f"grad {name}": value for name, value in target.cotangents.items()}}
    ranks = {name: run.least for name, run in target.runs.items()}
    for name, value in call.tensors.items():
        ranks |= {run.name: run.rank_in(value.shape) for run in declared[name].runs}
    return ranks


def declare(
    launcher: Launcher,
    cls: type[Target] = Target,
    /,
    *,
    name: str = "",
    dtypes: str | Iterable[str] | None = None,
    reference: Callable[..., Mapping[str, Any]] | None = None,
    baseline: Launcher | None = None,
    contract: Contract | str = "envelope",
    batch: Size | None = None,
    rows: Mapping[str, Size] | None = None,
    invariance: str = "bitwise",
    layout: str = "envelope",
    range: str = "working",
    linear: str | Iterable[str] = (),
    shifts: str | Iterable[str] = (),
    dims: Iterable[Size] = (),
    accumulate: str = "float32",
    dot: str = "ieee",
    deterministic: bool | str = True,
    in_place: str | Iterable[str] | Mapping[str, str] = (),
    nonfinite: str | Iterable[str] | Mapping[str, str | Iterable[str]] = (),
    large: bool = False,
    as_good_as: str = "",
    rejects: Mapping[str, Callable[..., Mapping[str, Any]]] | None = None,
    constants: Iterable[float] = (),
    differentiable: Mapping[str, TensorArgument] | None = None,
    timeout: float = 30.0,
    exact: Callable[..., Mapping[str, Any]] | None = None,
    seeds: Mapping[str, Mapping[str, Any]] | None = None,
    unreached: Mapping[str, str] | None = None,
    imports: str | Iterable[str] = (),
    **arguments: TensorArgument | OptionArgument | Size,
) -> Target:
    """The record for a launcher and its declaration; TargetError names what does not fit together."""
    keywords = dict(locals())
    check_keywords(launcher, {key: keywords[key] for key in KEYWORDS}, arguments)
    label = name or launcher.__name__
    plain = known_dtypes(FLOATS if dtypes is None else dtypes)
    tensors = _tensors(arguments, plain)
    declared = cls(
        name=label, launcher=launcher, path=Path(inspect.getsourcefile(launcher) or "<unknown>"),
        sizes=_sizes(tensors, arguments, dims), tensors=tensors,
        options={key: value.as_written(key) for key, value in arguments.items() if isinstance(value, OptionArgument)},
        passed_sizes={key: value.name for key, value in arguments.items() if isinstance(value, Size)},
        reference=reference, baseline=baseline, exact=exact,
        contract=parse_contract(contract), invariance=invariance, layout=layout, range=range,
        linear=listed(linear), shifts=listed(shifts), imports=listed(imports),
        batch=batch.name if batch else None, rows={output: row.name for output, row in (rows or {}).items()},
        cotangents=_tensors(differentiable or {}, plain),
        accumulate=accumulate, dot=dot,
        deterministic=deterministic is True, nondeterminism=deterministic if isinstance(deterministic, str) else "",
        in_place=_options_of(in_place), nonfinite=parse_nonfinite(nonfinite), large=large, as_good_as=as_good_as,
        rejects=rejects or {}, unreached=unreached or {}, constants=tuple(map(float, constants)), timeout=timeout,
        seeds=seeds or {}, assumed_dtypes=_assumed_dtypes(arguments) if dtypes is None else frozenset(),
    )  # fmt: skip
    check_declaration(declared)
    _note(declared)
    return declared


KEYWORDS = tuple(inspect.getfullargspec(declare).kwonlyargs)
"""The keywords of `@target`, which name no arguments."""


def _options_of(in_place: str | Iterable[str] | Mapping[str, str]) -> dict[str, str]:
    """The tensors that may be written, each with the option that asks for it, or none."""
    return dict(in_place) if isinstance(in_place, Mapping) else dict.fromkeys(listed(in_place), "")


def _tensors(arguments: Mapping[str, object], plain: tuple[str, ...]) -> dict[str, TensorArgument]:
    """The tensors among the arguments, with the target's dtypes where they have none of their own."""
    return {
        key: replace(value, dtypes=value.dtypes or plain)
        for key, value in arguments.items()
        if isinstance(value, TensorArgument)
    }


def _assumed_dtypes(arguments: Mapping[str, object]) -> frozenset[str]:
    """The tensors among the arguments that list no dtypes, in a target that lists none."""
    tensors = {key: value for key, value in arguments.items() if isinstance(value, TensorArgument)}
    return frozenset(key for key, value in tensors.items() if not value.dtypes)


def _sizes(
    tensors: Mapping[str, TensorArgument], arguments: Mapping[str, object], extra: Iterable[Size]
) -> tuple[Size, ...]:
    """Every dim once, in the order in which the declaration names them."""
    sizes: dict[str, Size] = {}
    passed = [value for value in arguments.values() if isinstance(value, Size)]
    for dim in [*(dim for value in tensors.values() for dim in value.sizes), *passed, *extra]:
        if sizes.setdefault(dim.name, dim) != dim:
            raise TargetError(f"dim {dim.name!r} is declared twice with different limits")
    for key, value in tensors.items():
        for missing in [name for text in value.expressions for name in names(text) if name not in sizes]:
            hint = f"which no argument declares: pass dims=({missing},)"
            raise TargetError(f"argument {key!r} uses dim {missing!r}, {hint}")
    return tuple(sizes.values())
