"""SARIF: items as the static analysis results that code hosts show at the lines they concern (OASIS SARIF 2.1.0)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from fuzz.model.oracles import find_oracle
from fuzz.report.items import Item

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "SRCROOT"
SEED = "seed"
"""The rule of a case that is saved without a finding."""


def sarif(found: Sequence[Item], version: str) -> str:
    """The log of one run: every item is a result."""
    rules = sorted({one.rule for one in found})
    driver = {"name": "fuzz", "version": version, "semanticVersion": version, "rules": [rule(name) for name in rules]}
    results = [result(one, rules.index(one.rule)) for one in found]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=True) + "\n"


def title(oracle: str) -> str:
    """What is wrong, by the name of the oracle."""
    return "a seed case disagrees" if oracle == SEED else find_oracle(oracle).title


def rule(name: str) -> dict[str, Any]:
    return {"id": name, "name": name.replace("/", "-"), "shortDescription": {"text": title(name.split("/")[0])}}


def result(one: Item, index: int) -> dict[str, Any]:
    accepted = one.state == "accepted"
    made: dict[str, Any] = {
        "ruleId": one.rule,
        "ruleIndex": index,
        "level": "note" if accepted else level(one),
        "message": {"text": f"{one.entry.case.target}: {one.told}"},
        "locations": [place(one.source, one.line)],
        "partialFingerprints": {"fuzzCase/v1": one.entry.digest},
        "baselineState": "new" if one.seen == "new" else "unchanged",
        "properties": properties(one),
    }
    if one.path:
        entry = {"physicalLocation": {"artifactLocation": artifact(one.path)}, "message": {"text": "the corpus entry"}}
        made["relatedLocations"] = [entry | {"id": 1}]
    if accepted:
        made["suppressions"] = [{"kind": "external", "justification": one.entry.why or "accepted in the corpus"}]
    return made


def level(one: Item) -> str:
    """A reference that is wrong is the target's author's matter, not a fault of the kernel."""
    return "warning" if one.entry.provenance.adjudication.name == "reference" else "error"


def place(file: str, line: int) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": artifact(file), "region": {"startLine": line}}}


def artifact(file: str) -> dict[str, str]:
    """A relative path is a path in the checkout."""
    path = PurePath(file)
    if path.is_absolute():
        return {"uri": "file://" + quote(path.as_posix(), errors="surrogatepass")}
    return {"uri": quote(path.as_posix(), errors="surrogatepass"), "uriBaseId": ROOT}


def properties(one: Item) -> dict[str, Any]:
    found = {"repeat": f"fuzz replay {one.path}", "dims": dict(one.entry.case.last.dims)}
    said = {"planted": one.entry.planted, "verdict": one.entry.provenance.fields().get("verdict", "")}
    return found | {name: text for name, text in said.items() if text}
