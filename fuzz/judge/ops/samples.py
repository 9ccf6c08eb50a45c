"""Finds samples of an operation in OpInfo, the samples of PyTorch's own test-suite, in a process of its own."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from types import ModuleType
from typing import Any
from unittest import TestCase

import torch
from torch.utils._pytree import tree_map

from fuzz.backends.dispatch_mode import DispatchMode
from fuzz.backends.guarded_memory import DTYPE_NAMES
from fuzz.judge.formats.ops import Sample, WrongForm, check_form, expected_form
from fuzz.judge.ops.requests import FindSamples, SampleConfig, SampleFile
from fuzz.judge.ops.schemas import (
    Call,
    bind,
    find_functional,
    find_overload,
    full_name,
    is_written,
    name_results,
    named,
    take_tensors,
)
from fuzz.judge.problem.description import Unsupported
from fuzz.judge.processes.describe import is_unstructured
from fuzz.judge.processes.requests import Refusal
from fuzz.model.recipes import recipe

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool)
"""Dtypes of the samples; those of the first one that an operation takes come first, and are more."""
READ = 64
"""Samples of one OpInfo that are looked at, in one dtype."""
DRAWS = 3
"""How often the values of a sample are drawn."""
SCANNED = 2
"""Samples of each OpInfo that are looked at to find out which operations it calls."""
ELEMENTS = 1 << 16
"""Elements of all tensors of a sample, at most."""
SPREAD = recipe("uniform", exponent=3, signed=1)
"""What stands for values of both signs, which OpInfo draws between -9 and 9."""


class CallRecorder(DispatchMode):
    """While active, keeps the calls of an operation, or the names of all that are called."""

    def __init__(self, wanted: Any = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.wanted = wanted
        self.calls: list[Call] = []
        self.seen: set[Any] = set()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.seen.add(func)
        if func is self.wanted:
            self.calls.append(copy_call((args, kwargs or {})))
        return func(*args, **(kwargs or {}))


def copy_call(call: Call) -> Call:
    """The call with copies of its tensors."""

    def copy(value: Any) -> Any:
        return value.detach().clone() if isinstance(value, torch.Tensor) else value

    return tree_map(copy, call[0]), tree_map(copy, call[1])


class SampleFinder:
    """Answers the requests for samples."""

    def __init__(self, config: SampleConfig) -> None:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        self.config = config
        self.count = 0

    @cached_property
    def infos(self) -> Sequence[Any]:
        """PyTorch's own descriptions of its operations."""
        if "expecttest" not in sys.modules:
            # PyTorch's test utilities derive a class of tests from one of this package, which nothing here uses.
            stand_in = ModuleType("expecttest")
            stand_in.TestCase = TestCase  # type: ignore[attr-defined]
            with suppress(ImportError):
                __import__("expecttest")
            sys.modules.setdefault("expecttest", stand_in)
        from torch.testing._internal.common_methods_invocations import op_db

        return list(op_db)

    @cached_property
    def callers(self) -> Mapping[Any, list[Any]]:
        """By operation the descriptions whose first samples call it."""
        found: dict[Any, list[Any]] = {}
        for info in self.infos:
            for operation in called_operations(info):
                found.setdefault(operation, []).append(info)
        return found

    def __call__(self, request: FindSamples) -> tuple[SampleFile, ...] | Refusal:
        reference = find_overload(request.counterpart) if request.counterpart else None
        if reference is None:
            return Refusal(f"PyTorch has no operation {request.operation} to compare with", Unsupported.__name__)
        found = list(self.find(request.operation, reference))
        if not found:
            return Refusal(f"OpInfo has no sample that calls {full_name(reference)}", Unsupported.__name__)
        return tuple(found)

    def find(self, operation: str, reference: Any) -> Iterator[SampleFile]:
        """Writes samples of an operation, those of its first dtype first.

        They are of the descriptions that have its name, or else of those that call it.
        """
        functional = find_functional(reference)
        for find_infos in (self.named_infos, self.calling_infos):
            infos, most, has_found = find_infos(functional), self.config.most, False
            for dtype in DTYPES:
                accepting = [one for one in infos if dtype in one.dtypes]
                samples = spread(self.collect(accepting, operation, reference, functional, dtype), most)
                yield from map(self.write, samples)
                if samples:
                    most, has_found = self.config.most_others, True
            if has_found:
                return

    def write(self, sample: Sample) -> SampleFile:
        path = self.config.folder / f"{self.count}.sample"
        self.count += 1
        torch.save(sample, path)
        return SampleFile(path, DTYPE_NAMES[sample.dtype])

    def calling_infos(self, operation: Any) -> Sequence[Any]:
        return self.callers.get(operation, ())

    def named_infos(self, operation: Any) -> Sequence[Any]:
        """The descriptions that have the name of an operation."""
        base = str(operation._schema.name).partition("::")[2]
        names = {base, base.strip("_")}
        return [one for one in self.infos if {one.name.rpartition(".")[2], one.aten_name} & names]

    def collect(
        self, infos: Sequence[Any], operation: str, reference: Any, functional: Any, dtype: torch.dtype
    ) -> list[Sample]:
        found: dict[str, Sample] = {}
        for info in infos:
            draws = [list(find_calls(info, functional, dtype, seed)) for seed in range(DRAWS)]
            for calls in zip(*draws, strict=False):
                adapted = [adapt(reference, functional, one) for one in calls]
                sample = make_sample(operation, reference, dtype, adapted, info)
                if sample is not None:
                    found.setdefault(form(sample), sample)
            if len(found) >= 2 * self.config.most:
                break
        return list(found.values())


def called_operations(info: Any) -> set[Any]:
    """The operations that the first samples of a description call."""
    dtype = next((one for one in DTYPES if one in info.dtypes), None)
    recorder = CallRecorder()
    if dtype is not None:
        with suppress(Exception), torch.no_grad():
            for sample in islice(info.sample_inputs("cpu", dtype), SCANNED):
                with recorder:
                    info(sample.input, *sample.args, **sample.kwargs)
    return recorder.seen


def find_calls(info: Any, operation: Any, dtype: torch.dtype, seed: int) -> Iterator[Call]:
    """The first call of an operation that each sample of a description makes; the sample itself where it is one."""
    torch.manual_seed(seed)
    with suppress(Exception), torch.no_grad():
        for sample in islice(info.sample_inputs("cpu", dtype), READ):
            recorder = CallRecorder(operation)
            given = copy_call(((sample.input, *sample.args), sample.kwargs))
            with suppress(Exception):
                with recorder:
                    info(sample.input, *sample.args, **sample.kwargs)
            if recorder.calls:
                yield recorder.calls[0]
            elif call := as_own_call(operation, given):
                yield call


def as_own_call(operation: Any, given: Call) -> Call | None:
    """The arguments of a sample as a call of the operation, where it takes them: it may be made of other ones."""
    try:
        call = bind(operation, *given)
        operation(*copy_call(call)[0], **call[1])
    except Exception:
        return None
    return call


def adapt(reference: Any, functional: Any, call: Call) -> Call | None:
    """The call of an operation that writes its results, from one of the operation that returns them."""
    if reference is functional:
        return call
    try:
        args, kwargs = copy_call(call)
        results = functional(*args, **kwargs)
        results = list(results) if isinstance(results, list | tuple) else [results]
        outs = [one.name for one in reference._schema.arguments if is_written(one) and one.kwarg_only]
        memory = {name: torch.randn(one.shape).to(one.dtype) for name, one in zip(outs, results, strict=False)}
        given = {one.name: value for one, value in named(functional, *call)}
        adapted = bind(reference, (), {**given, **memory})
        copied = copy_call(adapted)
        reference(*copied[0], **copied[1])
    except Exception:
        return None
    return adapted


def make_sample(
    operation: str, reference: Any, dtype: torch.dtype, calls: Sequence[Call | None], info: Any
) -> Sample | None:
    """A sample of calls that differ in values only; None where it cannot be one, or has no tensor of the dtype."""
    taken = [take_tensors(reference, call) for call in calls if call is not None]
    if not taken:
        return None
    (args, kwargs), first = taken[0]
    plain = [value.layout == torch.strided and value.dtype in DTYPE_NAMES for value in first.values()]
    is_small = sum(value.numel() for value in first.values()) <= ELEMENTS
    if not all(plain) or not is_small or not any(value.dtype == dtype for value in first.values()):
        return None
    if any(isinstance(value, torch.Generator) for value in (*args, *kwargs.values())):
        return None
    draws = [tensors for other, tensors in taken if repr(other) == repr((args, kwargs)) and same_form(first, tensors)]
    written = {one.name for one in reference._schema.arguments if is_written(one) and one.kwarg_only}
    restricted = getattr(info, "domain", (None, None)) != (None, None)
    declared = {} if restricted else {
        name: SPREAD for name in first if name not in written and is_spread([draw[name] for draw in draws])
    }  # fmt: skip
    return Sample(
        operation, full_name(reference), dtype, args, kwargs, tuple(draws), declared, frozenset(written & set(first)),
        has_form(reference, next(call for call in calls if call is not None)),
    )  # fmt: skip


def has_form(operation: Any, call: Call) -> bool:
    """Whether the results of a call have the form that tensors without memory tell: some differ between devices."""
    args, kwargs = copy_call(call)
    try:
        outputs = name_results(operation, operation(*args, **kwargs), (args, kwargs))
        check_form(outputs, expected_form(operation, *call), take_tensors(operation, (args, kwargs))[1])
    except WrongForm:
        return False
    return True


def same_form(first: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return {name: (one.shape, one.dtype) for name, one in first.items()} == {
        name: (one.shape, one.dtype) for name, one in other.items()
    }


def is_spread(draws: Sequence[torch.Tensor]) -> bool:
    """Whether values are drawn from numbers of both signs, independently of each other."""
    if not draws[0].is_floating_point() or not draws[0].numel() or len(draws) < 2:
        return False
    values = torch.cat([one.reshape(-1) for one in draws]).double()
    several = all(is_unstructured(one) for one in draws) if draws[0].numel() > 1 else len(set(values.tolist())) > 1
    return several and float(values.min()) < -1 and float(values.max()) > 1


def form(sample: Sample) -> str:
    """What tells samples apart: shapes and dtypes of tensors, and everything else that they are called with."""
    shapes = {name: (tuple(one.shape), one.dtype) for name, one in sample.draws[0].items()}
    return repr((sample.args, dict(sample.kwargs), shapes))


def spread(found: list[Sample], most: int) -> list[Sample]:
    """So many samples, as far apart in the list as they can be, the largest one first; one may have no elements."""
    empty = [one for one in found if not all(value.numel() for value in one.draws[0].values())]
    others = [one for one in found if all(value.numel() for value in one.draws[0].values())]
    count = min(most - (most > 1 and bool(empty)), len(others))
    chosen = [others[place * len(others) // count] for place in range(count)]
    return [*sorted(chosen, key=size, reverse=True), *empty[: min(most - count, 1)]]


def size(sample: Sample) -> int:
    """The elements of all tensors of a sample."""
    return sum(value.numel() for value in sample.draws[0].values())


def make_handler(config: SampleConfig) -> Callable[[FindSamples], tuple[SampleFile, ...] | Refusal]:
    """Makes the handler of the process that finds samples."""
    return SampleFinder(config)
