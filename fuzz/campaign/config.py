"""Reads and checks a campaign's YAML file. An unknown key is an error that names the one that was meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from fuzz.backends import BACKENDS, SELECTABLE
from fuzz.corpus.codec import strict_yaml
from fuzz.errors import CorpusError, UsageError, os_errors_as
from fuzz.escaping import is_storable, printable
from fuzz.files import read_file
from fuzz.search.engines import ENGINES

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SIZES = {"MiB": 1 << 20, "GiB": 1 << 30}
MAX_SECONDS = 1e9
MAX_WORKERS = 1 << 16
MAX_COVERAGE_CASES = 1000
"""Cases of one measurement of coverage, at most."""
MAX_KEY = 100
"""Characters of a wrong key that a message repeats."""
MAX_COUNT = 2**63 - 1
"""The largest whole number that a store holds."""


def _seconds(value: Any) -> Any:
    """90, 90s, 15m, 8h or 2d."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([smhd]?)\s*", str(value))
    if isinstance(value, bool) or match is None:
        raise ValueError("should be a time such as 90s, 15m, 8h or 2d")
    return float(match[1]) * UNITS[match[2] or "s"]


def _bytes(value: Any) -> Any:
    match = re.fullmatch(r"\s*([0-9]+)\s*(MiB|GiB)\s*", str(value))
    if match is None:
        raise ValueError("should be a size such as 900MiB or 4GiB")
    return int(match[1]) * SIZES[match[2]]


def _storable(value: str) -> str:
    if not is_storable(value):
        raise ValueError("should be text without control characters")
    return value


def _gpus(value: float) -> float:
    """Ray takes shares of one GPU, or whole ones."""
    if value > 1 and value % 1:
        raise ValueError("should be a share of one GPU, or a whole number")
    return value


def _command(value: Any) -> Any:
    """One line is for the shell, as that of ``fuzz run --notify``."""
    return ["/bin/sh", "-c", value] if isinstance(value, str) else value


def _all_known(known: Sequence[str], names: list[str]) -> list[str]:
    for name in names:
        if name not in known:
            raise ValueError(f"should be of {', '.join(known)}")
    return names


Command = Annotated[list[str], BeforeValidator(_command)]
Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0, le=MAX_SECONDS)]
Bytes = Annotated[int, BeforeValidator(_bytes), Field(gt=0, le=MAX_COUNT)]
Count = Annotated[int, Field(gt=0, le=MAX_COUNT, strict=True)]
Share = Annotated[float, Field(ge=0, le=64, strict=True)]
Text = Annotated[str, Field(min_length=1), AfterValidator(_storable)]
Texts = Annotated[list[Text], Field(min_length=1)]


Backends = Annotated[Texts, AfterValidator(partial(_all_known, SELECTABLE))]
Engines = Annotated[Texts, AfterValidator(partial(_all_known, ENGINES))]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BudgetConfig(Strict):
    """What ends a campaign, whichever comes first. `quiet` is the time without a new finding."""

    time: Seconds | None = None
    cases: Count | None = None
    quiet: Seconds | None = None

    @model_validator(mode="after")
    def _ends(self) -> BudgetConfig:
        if self.time is None and self.cases is None and self.quiet is None:
            raise ValueError("should say time, cases or quiet, as nothing else ends a campaign")
        return self


class CampaignConfig(Strict):
    """What a campaign runs, where and for how long; docs/campaigns.md describes every key."""

    targets: Texts
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")] = "campaign"
    planted: list[Text] = []
    backends: Backends = ["auto"]
    engines: Engines = ["auto"]
    seeds: Annotated[list[Annotated[int, Field(ge=0, le=MAX_COUNT, strict=True)]], Field(min_length=1)] | None = None
    budget: BudgetConfig = BudgetConfig(time=3600.0)
    workers: Annotated[Count, Field(le=MAX_WORKERS)] = 1
    slice: Seconds = 60.0
    memory: Bytes | None = None
    coverage: Annotated[int, Field(ge=0, le=MAX_COVERAGE_CASES, strict=True)] = 0
    corpus: Text = "corpus"
    store: Text = "sqlite:///.fuzz/store.sqlite"
    folder: Text = ".fuzz"
    notify: Command = []
    cluster: Literal["local", "ray"] = "local"
    address: Text | None = None
    gpus_per_worker: Annotated[Share, AfterValidator(_gpus)] = 0.0
    cpus_per_worker: Share = 1.0

    @model_validator(mode="after")
    def _fits(self) -> CampaignConfig:
        if self.cluster == "local" and (self.gpus_per_worker or self.address):
            raise ValueError("address and gpus_per_worker are for cluster: ray")
        accelerators = [name for name in self.backends if name in BACKENDS and BACKENDS[name].is_accelerator]
        if self.cluster == "ray" and accelerators and not self.gpus_per_worker:
            raise ValueError(f"the backend {accelerators[0]} needs gpus_per_worker, such as 0.25")
        return self


def load_config(path: Path) -> CampaignConfig:
    """The checked configuration of a file. UsageError names the file and the key, in one line."""
    with os_errors_as(UsageError, f"cannot read {path}"):
        data = read_file(path, strict_yaml.LARGEST_FILE + 1)
    try:
        values = strict_yaml.parse(strict_yaml.decode(data), strict_yaml.TypedLoader)
    except CorpusError as error:
        raise UsageError(f"{path}: {error}") from None
    if not isinstance(values, dict):
        raise UsageError(f"{path}: a campaign is a mapping of keys such as targets, budget and workers")
    # Where the file gives no name it has the file's.
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", path.stem).strip("-.")[:100] or "campaign"
    return parse_config({"name": name, **values}, str(path))


def parse_config(values: dict[str, Any], source: str = "config") -> CampaignConfig:
    """The configuration of such values. UsageError names the source and the key that is wrong, in one line."""
    try:
        return CampaignConfig.model_validate(values)
    except ValidationError as error:
        raise UsageError(f"{source}: {printable(_describe(error))}") from None


def _describe(error: ValidationError) -> str:
    """The first thing that is wrong; a key that is unknown before any other."""
    first = min(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    key = ".".join(str(part)[:MAX_KEY] for part in first["loc"] if not str(part).startswith("function-"))
    if first["type"] == "extra_forbidden":
        return f"{key} is not known{_suggest(first['loc'])}"
    if first["type"] == "missing":
        return f"{key} is missing"
    message = first["msg"].removeprefix("Value error, ")
    if not key:
        return message
    message = message[:1].lower() + message[1:].replace("Input", "input")
    return f"{key} {message}, and is {str(first['input'])[:60]!r}".replace("input should", "should")


def _suggest(key: tuple[int | str, ...]) -> str:
    known = list((BudgetConfig if key[0] == "budget" and len(key) > 1 else CampaignConfig).model_fields)
    close = difflib.get_close_matches(str(key[-1])[:MAX_KEY], known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
