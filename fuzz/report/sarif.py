"""Writes items as the static analysis results that code hosts show at the lines they concern (OASIS SARIF 2.1.0)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from fuzz.model.oracle_specs import find_oracle_spec
from fuzz.report.entry_text import replay_command
from fuzz.report.items import SEED, ReportItem

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
SOURCE_ROOT = "SRCROOT"
LEVELS = {"high": "error", "medium": "warning", "low": "note"}
"""The level of each severity."""


def sarif(items: Sequence[ReportItem], version: str, unconfirmed: Mapping[str, str] | None = None) -> str:
    """The log of one run, in which every item is a result. `version` is that of this package.

    What `unconfirmed` says of the disagreements of oracles are notifications: no finding, and no source line, stands
    for them.
    """
    names = sorted({item.rule for item in items})
    rules = [rule(name) for name in names]
    driver = {"name": "fuzz", "version": version, "semanticVersion": version, "rules": rules}
    results = [result(item, names.index(item.rule)) for item in items]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    if unconfirmed:
        texts = (f"{name}: {text}" for name, text in unconfirmed.items())
        notifications = [{"level": "error", "message": {"text": text}} for text in texts]
        run["invocations"] = [{"executionSuccessful": True, "toolExecutionNotifications": notifications}]
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=True) + "\n"


def rule(name: str) -> dict[str, Any]:
    oracle = name.split("/")[0]
    title = "a seed case disagrees" if oracle == SEED else find_oracle_spec(oracle).title
    return {"id": name, "name": name.replace("/", "-"), "shortDescription": {"text": title}}


def result(item: ReportItem, rule_index: int) -> dict[str, Any]:
    accepted, region = item.state == "accepted", {"startLine": item.line}
    fields: dict[str, Any] = {
        "ruleId": item.rule,
        "ruleIndex": rule_index,
        "level": "note" if accepted else level(item),
        "message": {"text": f"{item.entry.case.target}: {item.message}"},
        "locations": [{"physicalLocation": {"artifactLocation": artifact(item.source), "region": region}}],
        "partialFingerprints": {"fuzzCase/v1": item.entry.digest},
        "baselineState": "new" if item.seen == "new" else "unchanged",
        "properties": properties(item),
    }
    if item.path:
        place = {"physicalLocation": {"artifactLocation": artifact(item.path)}, "message": {"text": "the corpus entry"}}
        fields["relatedLocations"] = [place | {"id": 1}]
    if accepted:
        fields["suppressions"] = [{"kind": "external", "justification": item.entry.why or "accepted in the corpus"}]
    return fields


def level(item: ReportItem) -> str:
    """The level of an item's severity. A reference that is wrong is its author's matter, not a fault of the kernel.

    What is not graded, as no case of a planted bug is, is an error.
    """
    found = LEVELS[item.entry.severity or "high"]
    return "warning" if found == "error" and item.entry.provenance.adjudication.name == "reference" else found


def artifact(file: str) -> dict[str, str]:
    """A relative path is a path in the checkout."""
    path = PurePath(file)
    uri = quote(path.as_posix(), errors="surrogatepass")
    return {"uri": "file://" + uri} if path.is_absolute() else {"uri": uri, "uriBaseId": SOURCE_ROOT}


def properties(item: ReportItem) -> dict[str, Any]:
    entry = item.entry
    verdict = entry.provenance.fields().get("verdict")
    optional = {"planted": entry.planted, "verdict": verdict, "severity": entry.severity}
    required = {"repeat": replay_command(item.path, item.target), "dims": dict(entry.case.last.dims)}
    return required | {name: text for name, text in optional.items() if text}
