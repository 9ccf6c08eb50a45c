"""Writes items as the XML that build servers show as tests: a finding is a test that fails."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from fuzz.report.items import ReportItem

FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, not even escaped (section 2.2, Char)."""


def junit(
    name: str,
    items: Sequence[ReportItem],
    seconds: float,
    agreed: Mapping[str, int] | None = None,
    errors: Mapping[str, str] | None = None,
    unconfirmed: Mapping[str, str] | None = None,
) -> str:
    """The document. `agreed` maps oracles that found nothing to the cases that they examined: tests that pass.

    `unconfirmed` maps oracles to what is to be said of their disagreements: tests that fail. `errors` maps the paths of
    entries that could not be run to the reasons. `seconds` is the time that all of it took.
    """
    agreed, errors, unconfirmed = agreed or {}, errors or {}, unconfirmed or {}
    states = Counter(item.state for item in items)
    tests, failures = len(items) + len(agreed) + len(errors) + len(unconfirmed), states["failed"] + len(unconfirmed)
    counts = {"tests": tests, "failures": failures, "errors": len(errors), "skipped": states["accepted"]}
    numbers = {key: str(value) for key, value in counts.items()} | {"time": f"{seconds:.3f}"}
    root = Element("testsuites", {"name": name, **numbers})
    suite = SubElement(root, "testsuite", root.attrib)
    for oracle, cases in agreed.items():
        test = SubElement(suite, "testcase", {"classname": name, "name": oracle, "time": "0"})
        SubElement(test, "system-out").text = f"{cases} cases examined"
    for oracle, message in unconfirmed.items():
        test = SubElement(suite, "testcase", {"classname": name, "name": oracle, "time": "0"})
        SubElement(test, "failure", {"type": oracle, "message": message})
    for item in items:
        add_test(suite, item)
    for path, reason in errors.items():
        test = SubElement(suite, "testcase", {"classname": name, "name": path, "time": "0"})
        SubElement(test, "error", {"message": reason})
    indent(root)
    document = FORBIDDEN.sub("\ufffd", tostring(root, encoding="unicode"))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{document}\n'


def add_test(suite: Element, item: ReportItem) -> None:
    """Adds an item to a suite as a test."""
    entry = item.entry
    classname = entry.case.target + (f"[{entry.planted}]" if entry.planted else "")
    attributes = {"classname": classname, "name": item.name, "file": item.source, "time": "0"}
    test = SubElement(suite, "testcase", attributes | {"line": str(item.line)})
    if entry.severity:
        properties = SubElement(test, "properties")
        SubElement(properties, "property", {"name": "severity", "value": entry.severity})
    if item.state == "failed":
        SubElement(test, "failure", {"type": item.rule, "message": item.message}).text = item.text
    elif item.state == "accepted":
        SubElement(test, "skipped", {"message": f"accepted: {entry.why}".rstrip(": ")})
    else:
        SubElement(test, "system-out").text = item.message
