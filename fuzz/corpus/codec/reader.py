"""Reads entries from text; every field is checked before it is used."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from fuzz.corpus.codec.strict_yaml import fields_of, mapping, name, natural, sequence, shorten, text, texts
from fuzz.errors import CorpusError, FuzzError
from fuzz.model.case import (
    LARGEST_INTEGER,
    LEAST_INTEGER,
    Argument,
    Call,
    Case,
    LaunchOptions,
    Scalar,
    Split,
)
from fuzz.model.dims import LONGEST_EXPRESSION, resolve
from fuzz.model.dtypes import DTYPES
from fuzz.model.entry import STATUSES, Entry
from fuzz.model.finding import Element, Finding
from fuzz.model.grade import INPUT_CLASSES, SEVERITIES, Grade, TypicalCase
from fuzz.model.layout import SPAN, Layout
from fuzz.model.oracle_specs import SYMPTOMS
from fuzz.model.provenance import Provenance
from fuzz.model.rate import Rate
from fuzz.model.recipes import Exact, Patched, Recipe, Values

ELEMENTS = 1 << 26
"""Stored elements of all tensors of the largest case that is read."""
LOGICAL_ELEMENTS = 1 << 40
"""Elements of one tensor, those that an expanded layout repeats among them."""
RANK = 64
STEPS = 1 << 20
"""The largest step, pad or offset of a layout."""
REACH = 40
MAX_LAUNCH_OPTION = (1 << 31) - 1
RATE = re.compile("([0-9]{1,9})/([1-9][0-9]{0,8})", re.ASCII)
WORDS = re.compile(r"(0x[0-9a-f]{1,16}( 0x[0-9a-f]{1,16})*)?")
NUMBER = re.compile(r"-?(inf|nan|[0-9]{1,300}(\.[0-9]{1,300})?(e[+-]?[0-9]{1,4})?)")


def loads(data: bytes, *, digest: bool = True) -> Entry:
    """The entry of a file's bytes, its digest checked. CorpusError says in one line what is wrong."""
    try:
        return _entry(fields_of(data), digest)
    except CorpusError:
        raise
    except (FuzzError, ValueError, ArithmeticError) as error:
        raise CorpusError(f"not an entry: {error}") from None


def _entry(value: Any, digest: bool) -> Entry:
    allowed = "format target planted status why digest case finding grade seen"
    fields = mapping(value, "an entry", allowed, needed="target status digest case")
    status = text(fields["status"], "status")
    if status not in STATUSES:
        raise CorpusError(f"status {shorten(status)} is not one of {', '.join(STATUSES)}")
    case = _case(fields["case"], name(fields["target"], "target"))
    finding = fields.get("finding", {})
    entry = Entry(
        case=case,
        finding=_finding(finding, len(case.calls)) if "finding" in fields else None,
        status=status,
        why=text(fields.get("why", ""), "why"),
        planted=name(fields["planted"], "planted") if "planted" in fields else "",
        also=texts(finding.get("also", []), "also"),
        provenance=Provenance.parse(
            {key: text(value, key) for key, value in mapping(fields.get("seen", {}), "seen").items()}
        ),
        grade=_grade(fields["grade"], case.target) if "grade" in fields else None,
    )
    if digest and entry.digest != text(fields["digest"], "digest"):
        raise CorpusError(f"digest is {shorten(fields['digest'])}, but the case's bytes give {entry.digest!r}")
    return entry


def _grade(value: Any, target: str) -> Grade:
    keys = "severity input_class typical eager_ratio eager_dtype reason"
    fields = mapping(value, "grade", keys, needed="severity input_class")
    severity, input_class = text(fields["severity"], "severity"), text(fields["input_class"], "input_class")
    for one, known in ((severity, SEVERITIES), (input_class, INPUT_CLASSES)):
        if one not in known:
            raise CorpusError(f"{shorten(one)} is not one of {', '.join(known)}")
    return Grade(
        severity,
        input_class,
        _typical(fields["typical"], target) if "typical" in fields else None,
        _number(fields["eager_ratio"], "eager_ratio") if "eager_ratio" in fields else None,
        text(fields.get("eager_dtype", ""), "eager_dtype"),
        text(fields.get("reason", ""), "reason"),
    )


def _typical(value: Any, target: str) -> TypicalCase:
    fields = mapping(value, "typical", "rate case finding", needed="rate case finding")
    case, rate = _case(fields["case"], target), RATE.fullmatch(text(fields["rate"], "rate"))
    if rate is None or int(rate[1]) > int(rate[2]):
        raise CorpusError(f"the rate of the typical case is {shorten(fields['rate'])}, not a number of draws, as 37/60")
    return TypicalCase(case, _finding(fields["finding"], len(case.calls)), Rate(int(rate[1]), int(rate[2])))


def _case(value: Any, target: str) -> Case:
    fields = mapping(value, "case", "calls split", needed="calls")
    calls = tuple(_call(call) for call in sequence(fields["calls"], "calls"))
    if not calls:
        raise CorpusError("calls is empty")
    stored = 0
    for call in calls:
        for title, value in call.tensors.items():
            shape = resolve(value.shape, call.dims)
            if min(shape, default=0) < 0:
                raise CorpusError(f"{title} has a negative size")
            elements, span = math.prod(shape), value.layout.offset + value.layout.span(shape)
            if elements > LOGICAL_ELEMENTS:
                raise CorpusError(f"{title} has {shorten(elements)} elements, more than {LOGICAL_ELEMENTS}")
            if span > SPAN:
                raise CorpusError(f"the layout of {title} spans {shorten(span)} elements, more than {SPAN}")
            stored += math.prod(value.layout.stored(shape))
    if stored > ELEMENTS:
        raise CorpusError(f"the case has {stored} elements, more than the {ELEMENTS} that are read")
    return Case(target, calls, _split(fields["split"]) if "split" in fields else None)


def _split(value: Any) -> Split:
    keys = "start length before after"
    fields = mapping(value, "split", keys, needed=keys)
    return Split(**{key: natural(fields[key], key, ELEMENTS) for key in keys.split()})


def _call(value: Any) -> Call:
    fields = mapping(value, "a call", "dims options launch arguments cotangents", needed="dims arguments")
    dims = {key: natural(size, key) for key, size in mapping(fields["dims"], "dims").items()}
    arguments, cotangents = (
        {key: _argument(value, key, dims) for key, value in mapping(fields.get(part, {}), part).items()}
        for part in ("arguments", "cotangents")
    )
    options = {key: _scalar(value, key) for key, value in mapping(fields.get("options", {}), "options").items()}
    launch = _launch(fields["launch"]) if "launch" in fields else None
    return Call(dims, arguments, options, cotangents, launch)


def _launch(value: Any) -> LaunchOptions:
    fields = mapping(value, "launch", "config multiprocessor_count max_shared_mem")
    if not fields:
        raise CorpusError("launch is empty")
    return LaunchOptions(**{key: natural(value, key, MAX_LAUNCH_OPTION) for key, value in fields.items()})


def _argument(value: Any, title: str, dims: Mapping[str, int]) -> Argument:
    fields = mapping(value, title, "shape dtype layout bits recipe overrides", needed="shape dtype")
    shape = texts(fields["shape"], f"the shape of {title}")
    if len(shape) > RANK:
        raise CorpusError(f"the shape of {title} has {len(shape)} dims, more than {RANK}")
    if any(len(size) > LONGEST_EXPRESSION for size in shape):
        raise CorpusError(f"the shape of {title} has more than {LONGEST_EXPRESSION} characters")
    resolve(shape, dims)
    dtype = text(fields["dtype"], f"the dtype of {title}")
    if dtype not in DTYPES:
        raise CorpusError(f"unknown dtype {shorten(dtype)}; known: {', '.join(DTYPES)}")
    layout = _layout(fields.get("layout", {}))
    if not layout.fits(len(shape)):
        raise CorpusError(f"the layout of {title} does not fit {len(shape)} dims")
    return Argument(shape, dtype, _values(fields, title, dtype), layout)


def _layout(value: Any) -> Layout:
    fields = mapping(value, "a layout", "order step pad offset expand reach")
    plain = Layout()
    numbers = (
        natural(fields[key], key, STEPS) if key in fields else getattr(plain, key)
        for key in ("step", "pad", "offset", "reach")
    )
    order, expand = (
        tuple(natural(dim, key, STEPS) for dim in sequence(fields.get(key, []), key)) for key in ("order", "expand")
    )
    step, pad, offset, reach = numbers
    layout = Layout(order, step, pad, offset, expand, reach)
    if layout.step < 1 or layout.reach > REACH or len(set(layout.expand)) < len(layout.expand):
        raise CorpusError(f"a layout has a step of 0, a reach over {REACH}, or expands a dim twice")
    return layout


def _values(fields: Mapping[str, Any], title: str, dtype: str) -> Values:
    if ("bits" in fields) == ("recipe" in fields):
        raise CorpusError(f"{title} has neither bits nor a recipe, or both")
    if "bits" in fields:
        bits = text(fields["bits"], "bits")
        if not WORDS.fullmatch(bits) or "overrides" in fields:
            raise CorpusError(f"the bits of {title} are not hex words, such as 0x3f800000, or have overrides")
        return Exact(tuple(int(pattern, 16) for pattern in bits.split()), dtype)
    recipe = Recipe.parse(text(fields["recipe"], "recipe"))
    if "overrides" not in fields:
        return recipe
    return Patched(recipe, tuple(_override(pair) for pair in text(fields["overrides"], "overrides").split(", ")))


def _override(pair: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,18}): ([0-9a-f]{1,16})", pair, re.ASCII)
    if match is None:
        raise CorpusError(f"override {shorten(pair)} is not an index and a hex word, such as 3: 7fc00000")
    return int(match[1]), int(match[2], 16)


def _finding(value: Any, calls: int) -> Finding:
    allowed = "oracle outputs symptom message call ratio disagreeing compared place kinds change elements also"
    fields = mapping(value, "a finding", allowed, needed="oracle outputs symptom message call")
    oracle, symptom = text(fields["oracle"], "oracle"), text(fields["symptom"], "symptom")
    if symptom not in SYMPTOMS.get(oracle, ()):
        raise CorpusError(f"oracle {shorten(oracle)} has no symptom {shorten(symptom)}")
    return Finding(
        oracle,
        texts(fields["outputs"], "outputs"),
        symptom,
        text(fields["message"], "message"),
        tuple(_element(element) for element in sequence(fields.get("elements", []), "elements")),
        natural(fields["call"], "call", calls - 1),
        _number(fields.get("ratio", "0.0"), "ratio"),
        natural(fields.get("disagreeing", "0"), "disagreeing"),
        natural(fields.get("compared", "0"), "compared"),
        text(fields.get("place", ""), "place"),
        _change(fields["change"]) if "change" in fields else None,
        kinds=tuple(_kind(one) for one in texts(fields.get("kinds", []), "kinds")),
    )


def _kind(written: str) -> tuple[str, str]:
    """(output, symptom) of what one output shows: ``value dx``. Other oracles may have those of accuracy."""
    symptom, _, output = written.partition(" ")
    if not output or not any(symptom in symptoms for symptoms in SYMPTOMS.values()):
        raise CorpusError(f"a kind of a finding is a symptom and an output, not {shorten(written)}")
    return output, symptom


def _change(value: Any) -> tuple[str, float]:
    parts = sequence(value, "change")
    if len(parts) != 2:
        raise CorpusError("change is not an argument and a number")
    return name(parts[0], "the argument of change"), _number(parts[1], "the number of change")


def _element(value: Any) -> Element:
    needed = "output index got got_word want"
    fields = mapping(value, "an element", f"{needed} bound ulps exact", needed=needed)
    texts_by_name = {key: text(value, key) for key, value in fields.items()}
    index = tuple(natural(number, "index") for number in texts_by_name.pop("index").split())
    return Element(index=index, **texts_by_name)


def _number(value: Any, what: str) -> float:
    if not NUMBER.fullmatch(text(value, what)):
        raise CorpusError(f"{what} is {shorten(value)}, not a number")
    return float(value)


def _scalar(value: Any, what: str) -> Scalar:
    if text(value, what) in ("true", "false"):
        return bool(value == "true")
    if value == "none":
        return None
    if value.startswith("str "):
        return str(value[4:])
    number = _number(value, what)
    if not re.fullmatch(r"-?[0-9]+", value):
        return number
    if not LEAST_INTEGER <= int(value) <= LARGEST_INTEGER:
        raise CorpusError(f"{what} is {shorten(value)}, which no integer of 64 bits is")
    return int(value)
