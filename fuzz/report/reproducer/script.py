"""Writes a stand-alone program that shows a finding: the kernel's and launcher's source, exact inputs, a check.

It needs torch and triton on a GPU, and ``fuzz.backends.cpu`` only where there is none, or where that alone shows the
finding. Run alone it ends with exit code 1 and one line where the kernel is wrong, with 0 where it is right, with 2 and
a traceback where it cannot run.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Template

from fuzz.backends import BACKENDS, DEFAULT
from fuzz.backends.execute import FatalError, run
from fuzz.backends.guarded_memory import DTYPE_NAMES
from fuzz.errors import UsageError
from fuzz.escaping import printable
from fuzz.model.case import Argument, Call, Case, Scalar
from fuzz.model.dims import resolve
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.layout import CONTIGUOUS
from fuzz.model.oracle_specs import ACCURACY
from fuzz.model.outcome import Rejected, Returned, describe
from fuzz.oracles import find_oracle
from fuzz.oracles.comparison.allowed import allowed_values
from fuzz.oracles.comparison.expected import STAGES, evaluate_reference
from fuzz.oracles.execution.examination import Examination
from fuzz.oracles.script_check import Graph, SavedFinding, ScriptCheck, check_size
from fuzz.report.reproducer.modules import bindings
from fuzz.report.reproducer.source import PACKAGE, PREFIX, SourceCollector, futures, lambda_at
from fuzz.search.engines.launch_options import launch_space
from fuzz.target.loader import variant_source
from fuzz.target.spec import PlantedBug, Target

TEMPLATE = Path(__file__).with_name("program.py.jinja")
AUTODIFF, GRAPHS = PACKAGE / "backends" / "autodiff.py", PACKAGE / "oracles" / "execution" / "autograd_graphs.py"


def script(entry: Entry, target: Target, planted_bug: PlantedBug | None, repeat: str) -> str:
    """The program's text. UsageError where the reference is at fault, TargetError where no script can be made."""
    last = len(entry.case.calls) - 1
    finding = entry.finding or Finding(ACCURACY.name, (), "value", "a seed case", call=last)
    if finding.symptom == "reference":
        raise UsageError("the reference is at fault, not the kernel: there is nothing for a program to show")
    saved = SavedFinding(entry, finding, target)
    check = script_check(saved)
    source = variant_source(target, planted_bug)
    launcher = planted_bug.launcher if planted_bug and planted_bug.launcher else target.launcher
    sources = SourceCollector()
    main = sources.add(target.path, source)
    sources.require(target.path, [launcher.__name__])
    functions = {name: expression(sources, target, function) for name, function in check.functions.items()}
    body = list(sources.pieces())
    compute = "gradients" if target.differentiable else "forward"
    calls = [*entry.case.calls, *([check.other_call] if check.other_call else [])]
    written = target.writable(entry.case.last) if target.differentiable else ()
    helped = list(helpers([compute, *(["make_writable"] if written else [])], check))
    launch = entry.case.last.launch
    rows = ", ".join(f"(arguments_{index}, cotangents_{index}, options_{index})" for index in range(len(calls)))
    template = Template(TEMPLATE.read_text(encoding="utf-8"), trim_blocks=True, lstrip_blocks=True)
    parts: dict[str, Any] = dict(
        docstring=docstring(f"{entry.case.target}: {finding.message}", "", f"repeat   {repeat}"),
        futures=futures(main),
        check=check,
        launch=launch.as_dict() if launch else {},
        pins_autotuners=launch_space(launcher).configs > 0 and not check.cpu_only,
        files={repr(name): literal(text) for name, text in sources.imported_modules().items()},
        pieces=[*group_lines(text for text in body if text != "import torch"), *helped],
        calls=[call_texts(call, target) for call in calls],
        functions=functions,
        constants={
            "CALLS": f"[{rows}]",
            "SHOWN_CALL": last if finding.symptom == "bits" else finding.call,
            "LAUNCHER": launcher.__name__,
            "COMPUTE": PREFIX + compute,
            **{name: repr(value) for name, value in check.constants.items()},
            **({"EXPECTED": repr(expected_values(saved, check.values_of))} if check.values else {}),
            **{
                name: repr(expected_values(replace(saved, target=by), check.values_of))
                for name, by in check.values_by.items()
            },
            **({"GRAPHS": f"[{', '.join(map(graph_text, check.graphs))}]"} if check.graphs else {}),
        },
        passed=f"{PREFIX}make_writable(tensors, {tuple(written)!r})" if written else "tensors",
    )
    check_names(sources.bound(), own_names(template, {**parts, "pieces": helped}))
    return str(template.render(parts)).rstrip() + "\n"


def script_check(saved: SavedFinding) -> ScriptCheck:
    """How a script shows the finding. UsageError where that cannot be, as in an entry that somebody changed."""
    finding, case = saved.finding, saved.entry.case
    applies = find_oracle(finding.as_accuracy.oracle).applies(saved.target, case) or saved.entry.finding is None
    if not applies or finding.change and finding.change[0] not in {*case.last.arguments, *case.last.cotangents}:
        raise UsageError(f"no script can be made: in this case {finding.summary} cannot be, as {case.target} is now")
    for call in case.calls:
        check_size(call)
    return find_oracle(finding.oracle).script_check(saved)


def docstring(*lines: str) -> str:
    """A docstring of these lines, whatever they hold."""
    text = "\n".join(map(printable, lines)).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'"""{text}\n"""'


def literal(text: str) -> str:
    """A string literal that stays readable where the text allows it."""
    plain = "'''" not in text and not text.endswith(("'", "\\"))
    return f"r'''{text}'''" if plain else repr(text)


def group_lines(pieces: Iterable[str]) -> Iterator[str]:
    """Imports that follow each other as one piece."""
    for imports, texts in groupby(pieces, lambda text: text.startswith(("import ", "from "))):
        yield ("\n" if imports else "\n\n").join(texts)


def own_names(template: Template, parts: Mapping[str, Any]) -> dict[str, str]:
    """The names that a script binds itself, not the launcher's files, each with the import that does, if one does."""
    short = [{**call, "arguments": {}, "cotangents": {}} for call in parts["calls"]]
    text = template.render({**parts, "calls": short, "constants": dict.fromkeys(parts["constants"])})
    return dict(bindings(ast.parse(text).body))


def check_names(taken: Mapping[str, str], own: Mapping[str, str]) -> None:
    """UsageError where a file that is taken along has a name that the script uses for something else.

    Both are names with what they mean; only an import means the same in both.
    """
    names = sorted(name for name, meaning in taken.items() if name in own and own[name] != meaning)
    if names:
        raise UsageError(f"no script can be made: its own name {names[0]!r} is one of the launcher's; rename that")


def helpers(functions: Sequence[str], check: ScriptCheck) -> Iterator[str]:
    """How a launcher is called and differentiated, and the graphs in which the autograd oracle runs it."""
    sources = SourceCollector()
    sources.add(GRAPHS)
    sources.require(AUTODIFF, functions)
    for function, argument, _ in check.graphs:
        sources.require(GRAPHS, [function.__name__, *([argument.__name__] if callable(argument) else [])])
    yield from sources.pieces()


def graph_text(graph: Graph) -> str:
    """(computation, inputs that need a gradient) as an expression."""
    function, argument, wanted = graph
    text = PREFIX + function.__name__
    if argument is not None:
        text += f"({PREFIX + argument.__name__ if callable(argument) else repr(argument)})"
    return f"({text}, {wanted!r})"


def expression(sources: SourceCollector, target: Target, function: Callable[..., Any]) -> str:
    """A function of the target's file as an expression; what it uses is taken along."""
    if function.__name__ != "<lambda>":
        sources.require(target.path, [function.__name__])
        return function.__name__
    path = Path(function.__code__.co_filename)
    positions = [place for place in function.__code__.co_positions() if place[0] == place[1] and None not in place[2:]]
    line, _, first, last = max(positions, key=lambda place: (place[3] or 0) - (place[2] or 0))
    assert line is not None and first is not None and last is not None
    text = lambda_at(path.read_text(encoding="utf-8-sig"), line, (first, last))
    free = [used for used in function.__code__.co_names if used in sources.modules[path].defined]
    sources.require(path, free)
    return inspect.cleandoc(text)


def call_texts(call: Call, target: Target) -> dict[str, Any]:
    """Expressions of a call's arguments and cotangents by name, and its options and sizes as keywords."""
    scalars = target.scalars(call)
    return {
        "arguments": {name: tensor_text(value, call) for name, value in call.arguments.items()},
        "cotangents": {name: tensor_text(value, call) for name, value in call.cotangents.items()},
        "options": ", ".join(f"{name}={scalar_text(value)}" for name, value in scalars.items()),
    }


def scalar_text(value: Scalar) -> str:
    """An expression for an option; infinities and NaN have no literal."""
    finite = not isinstance(value, float) or math.isfinite(value)
    return repr(value) if finite else f"float({str(value)!r})"


def tensor_text(value: Argument, call: Call) -> str:
    shape = resolve(value.shape, call.dims)
    words = value.bits(call.dims).reshape(-1)
    text = '"' + " ".join(f"{int(word):x}" for word in words) + '"'
    strides = value.layout.strides(shape)
    offset = f", {value.layout.offset}" if value.layout != CONTIGUOUS and value.layout.offset else ""
    return f"tensor({text}, torch.{value.dtype}, {shape}, {strides}{offset})"


LAST = len(STAGES) - 1


def expected_values(saved: SavedFinding, case: Case | None = None) -> dict[str, object]:
    """[values, bounds, others] of each output, as `AllowedValues` has them; empty without a reference.

    They are those of another case than the saved one where it is given.
    """
    target, call = saved.target, saved.finding.call
    if target.reference is None:
        return {}
    backend = BACKENDS.get(saved.entry.provenance.backend, DEFAULT)
    exam = Examination(target, target.launcher, case or saved.entry.case, backend, Rejected("not run"))
    found: dict[str, object] = {}
    dtypes = output_dtypes(exam, call)
    for name, expected in evaluate_reference(exam, call, LAST).items():
        if name in dtypes:
            allowed = allowed_values(expected, named_dtype(dtypes[name]), exam.precision, target.contract)
            others = {index: [*map(repr, numbers)] for index, numbers in allowed.others.items()}
            found[name] = [*([number_text(v) for v in part] for part in (allowed.due, allowed.bounds)), others]
    return found


def number_text(value: float) -> str | int:
    """A number as a literal holds it: infinities and NaN, which have none, are texts, and so are all floats."""
    return value if isinstance(value, int) else repr(value)


def output_dtypes(exam: Examination, call: int) -> dict[str, str]:
    """The dtypes that the launcher gives its outputs, by name. UsageError where it gives none."""
    try:
        with exam.backend.session(None):
            outcome = run(exam.target, exam.launcher, exam.case.calls[: call + 1], exam.backend)
    except FatalError as fatal:
        outcome = fatal.outcome
    if not isinstance(outcome, Returned):
        raise UsageError(f"no script can be made: the case is {describe(outcome)}")
    return {name: DTYPE_NAMES[value.dtype] for name, value in outcome.calls[call].outputs.items()}
