"""What the schema of SARIF 2.1.0 requires, for tests of logs."""

from __future__ import annotations

import re
from typing import Any


def check_sarif(log: dict[str, Any]) -> None:
    """What the schema of SARIF 2.1.0 requires of the objects that are used, and what its text requires of them."""
    assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-schema-2.1.0.json")
    assert isinstance(log["runs"], list)
    for run in log["runs"]:
        driver = run["tool"]["driver"]
        assert driver["name"]
        rules = driver["rules"]
        assert all(rule["id"] for rule in rules) and len({rule["id"] for rule in rules}) == len(rules)
        for invocation in run.get("invocations", ()):
            assert isinstance(invocation["executionSuccessful"], bool)
            for told in invocation["toolExecutionNotifications"]:
                assert told["level"] in ("none", "note", "warning", "error") and told["message"]["text"]
        for result in run["results"]:
            assert isinstance(result["message"]["text"], str) and result["message"]["text"]
            assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
            assert result["level"] in ("none", "note", "warning", "error")
            assert result["baselineState"] in ("new", "unchanged", "updated", "absent")
            assert all(isinstance(text, str) for text in result["partialFingerprints"].values())
            for place in (*result["locations"], *result.get("relatedLocations", ())):
                artifact = place["physicalLocation"]["artifactLocation"]
                assert re.fullmatch(r"[A-Za-z0-9._~/:%-]+", artifact["uri"])
                assert artifact["uri"].startswith("file:///") or artifact["uriBaseId"]
            assert all(one["region"]["startLine"] >= 1 for one in physical_locations(result) if "region" in one)
            for one in result.get("suppressions", ()):
                assert one["kind"] in ("inSource", "external")


def physical_locations(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [place["physicalLocation"] for place in result["locations"]]
