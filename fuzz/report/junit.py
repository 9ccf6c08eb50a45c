"""JUnit: items as the XML that build servers show as tests: a finding is a test that fails."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from fuzz.report.items import Item, failed

FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, not even escaped (section 2.2, Char)."""


def junit(name: str, found: Sequence[Item], seconds: float, agreed: Mapping[str, int] | None = None) -> str:
    """The document. `agreed` are the oracles that examined cases and are no item's, each a test that passes."""
    tests = len(found) + len(agreed or {})
    skipped = sum(one.state == "accepted" for one in found)
    counts = {"tests": tests, "failures": failed(found), "errors": 0, "skipped": skipped}
    numbers = {key: str(value) for key, value in counts.items()} | {"time": f"{seconds:.3f}"}
    root = Element("testsuites", {"name": clean(name), **numbers})
    suite = SubElement(root, "testsuite", {"name": clean(name), **numbers})
    for oracle, cases in (agreed or {}).items():
        made = SubElement(suite, "testcase", {"classname": clean(name), "name": clean(oracle), "time": "0"})
        SubElement(made, "system-out").text = f"{cases} cases examined"
    for one in found:
        test(suite, one)
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def test(suite: Element, one: Item) -> None:
    classname = one.entry.case.target + (f"[{one.entry.planted}]" if one.entry.planted else "")
    attributes = {"classname": clean(classname), "name": clean(one.name), "file": clean(one.source), "time": "0"}
    made = SubElement(suite, "testcase", attributes | {"line": str(one.line)})
    if one.state == "failed":
        SubElement(made, "failure", {"type": clean(one.rule), "message": clean(one.told)}).text = clean(one.text)
    elif one.state == "accepted":
        SubElement(made, "skipped", {"message": clean(f"accepted: {one.entry.why}".rstrip(": "))})
    else:
        SubElement(made, "system-out").text = clean(one.told)


def clean(text: str) -> str:
    """The text with what XML cannot hold replaced."""
    return FORBIDDEN.sub("\ufffd", text)
