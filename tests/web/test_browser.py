"""The pages in a real browser: a campaign on a planted bug is started, its finding arrives, its script is copied."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
from services import missing, wait_until_answered

from fuzz import corpus
from fuzz.campaign.store import Coverage, Store
from fuzz.model.entry import Entry

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
CONFIG = """# A planted bug beside a good kernel
targets: [silu]
planted: [gelu_bw+erf_saturates]
backends: [cpu]
budget: {time: 10m}
slice: 2s
"""
PHONE = 390
PATIENCE = 240_000
"""Milliseconds until a finding must have arrived, on a machine that is busy."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    place = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    path = place or missing("no Chromium is installed: apt-get install chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield running
        running.close()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of `fuzz serve` in a folder; it ends with the block, and so do the campaigns that it started."""
    command = [sys.executable, "-m", "fuzz", "serve", "--port", "0", "--backend", "cpu"]
    with (folder / "told").open("w") as told:
        process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, stdout=told, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    address = re.fullmatch(r"serving (http://127\.0\.0\.1:\d+)/\n", line)
    assert address, line + process.stderr.read()
    wait_until_answered(address[1])
    try:
        yield address[1]
    finally:
        with suppress(OSError):
            asked = Request(f"{address[1]}/api/campaigns/1/stop", b"{}", {"Content-Type": "application/json"})
            urlopen(asked, timeout=10).close()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=240)


def is_wrong(told: ConsoleMessage) -> bool:
    """Whether a browser complains; an entry that is being replaced is not found for a moment, and asked for again."""
    is_missing_entry = "404" in told.text and "/findings/" in told.location["url"]
    return told.type in ("error", "warning") and not is_missing_entry


def watched(browser: Browser, address: str, wrong: list[str]) -> Page:
    """A page that notes what the browser complains of, and requests that leave the service."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
    page = context.new_page()
    page.on("console", lambda told: wrong.append(told.text) if is_wrong(told) else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith(address) else wrong.append(asked.url))
    page.set_default_timeout(60_000)
    return page


def test_a_campaign_from_start_to_script(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "planted.yaml").write_text(CONFIG)
    wrong: list[str] = []
    with served(tmp_path) as address:
        page = watched(browser, address, wrong)
        page.goto(f"{address}/")
        page.select_option("select[name=config]", "planted")
        page.click("text=Start campaign")
        expect(page.locator("#campaigns .state-running")).to_be_visible(timeout=PATIENCE)
        expect(page.locator("#findings tbody tr.fresh")).to_have_count(1, timeout=PATIENCE)
        expect(page.locator("#findings tbody tr")).to_contain_text("erf_saturates")
        # It would take all processors from what follows.
        page.click("#campaigns button:text('Stop')")
        expect(page.locator("#campaigns .state-stopped")).to_be_visible(timeout=PATIENCE)
        copied(page, tmp_path)
        finding = page.url
        every_page_fits_a_phone(page, address, finding)
        page.goto(f"{address}/")
        page.click("#campaigns button:text('Resume')")
        expect(page.locator("#campaigns .state-running")).to_have_count(1, timeout=PATIENCE)
        expect(page.locator("#campaigns .state-stopped")).to_have_count(0)
    assert wrong == []


def copied(page: Page, folder: Path) -> None:
    """Opens the finding, waits for its plots, and copies its script, which is a program."""
    page.click("#findings tbody a")
    plots = page.locator("figure.plot svg")
    try:
        # A case that is still being shrunk has a plot more.
        expect(plots.nth(1)).to_be_visible(timeout=PATIENCE)
    except AssertionError as error:
        shown = page.locator("[data-load], main > p").all_inner_texts()
        raise AssertionError(f"{plots.count()} plots at {page.url}, which says {shown}") from error
    expect(page.locator("table.data", has_text="#1")).to_contain_text("cpu")
    page.click("textarea.code >> xpath=ancestor::div[1] >> button")
    expect(page.locator("button:text('Copied')")).to_be_visible()
    script = page.evaluate("navigator.clipboard.readText()")
    assert script.strip() == page.input_value("textarea.code").strip() and "erf" in script
    compile(script, "script", "exec")


def every_page_fits_a_phone(page: Page, address: str, finding: str) -> None:
    page.set_viewport_size({"width": PHONE, "height": 844})
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        for place in (finding, f"{address}/", f"{address}/findings", f"{address}/campaigns/1", f"{address}/corpus",
                      f"{address}/help"):  # fmt: skip
            page.goto(place)
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE, place
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 384) == (scheme == "dark"), place


def test_what_failed_once_is_tried_again(browser: Browser, tmp_path: Path, entry: Entry) -> None:
    key = corpus.save_entry(tmp_path / "corpus", entry).stem
    with served(tmp_path) as address:
        page = watched(browser, address, [])
        answers = iter(
            [{"status": 503, "body": "busy"}, {"body": "<p data-retry='1'>hung</p>"}, {"body": "<b>drawn</b>"}]
        )
        page.route("**/study", lambda route: route.fulfill(content_type="text/html", **next(answers)))
        page.goto(f"{address}/findings/{key}")
        expect(page.locator("[data-load]")).to_contain_text("tried again in")
        expect(page.locator("[data-load] b")).to_have_text("drawn")
        # Of the dashboard the events fail at first, and then the page itself.
        failing = iter([503])
        page.route("**/api/events", lambda route: route.fulfill(status=503) if next(failing, 0) else route.continue_())
        page.goto(f"{address}/")
        page.route(f"{address}/", lambda route: route.fulfill(status=503), times=1)
        expect(page.locator("#problem")).to_contain_text("tried again in")
        expect(page.locator("#problem")).to_be_hidden()
        expect(page.locator("#connection")).to_have_class("live on")


def test_a_page_follows_its_finding_to_a_smaller_case(browser: Browser, tmp_path: Path, entry: Entry) -> None:
    path = corpus.save_entry(tmp_path / "corpus", entry)
    with served(tmp_path) as address, Store(f"sqlite:///{tmp_path}/.fuzz/store.sqlite") as store:
        page = watched(browser, address, [])
        is_replaced: list[bool] = []
        page.route("**/study", lambda route: route.continue_() if is_replaced else route.fulfill(status=503))
        page.goto(f"{address}/findings/{path.stem}")
        (found,) = store.findings()
        smaller = path.rename(path.with_name("dx-sign-0.yaml"))
        store.save_finding(replace(found, id=smaller.stem, path=f"gelu_bw/{smaller.name}"), replaces=found.id)
        is_replaced.append(True)
        page.wait_for_url(f"{address}/findings/{smaller.stem}")


def test_a_report_is_drawn_without_a_network(browser: Browser, tmp_path: Path, root: Path) -> None:
    out = tmp_path / "report.html"
    command = [sys.executable, "-m", "fuzz", "report", str(root / "corpus"), "--no-plots", "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(root)})
    wrong: list[str] = []
    context = browser.new_context(offline=True, viewport={"width": PHONE, "height": 844})
    page = context.new_page()
    page.on("console", lambda told: wrong.append(told.text))
    page.goto(out.as_uri())
    assert page.locator("section.finding").count() >= 5
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    page.locator("section.finding .copyable.line button").first.click()
    expect(page.locator("button:text('Copied')")).to_be_visible()
    assert wrong == []


HOSTILE = "</td><img src=x onerror=alert(1)>{{ 7 * 7 }}"


def test_a_campaigns_coverage_is_shown_with_its_trend_and_stays_open(browser: Browser, tmp_path: Path) -> None:
    blocker = {
        "kind": "branch",
        "file": "k.py",
        "line": 7,
        "elsewhere": [],
        "what": HOSTILE,
        "needs": "x",
        "reason": "",
    }
    counts = {"lines_all": 20, "branches_run": 3, "branches_all": 6, "masks_run": 1, "masks_all": 2}
    wrong: list[str] = []
    with served(tmp_path) as address, Store(f"sqlite:///{tmp_path}/.fuzz/store.sqlite") as store:
        campaign = store.create_campaign("nightly", "{}", str(tmp_path / "corpus"), 1e9, "elsewhere", 1)

        def save(number: int, lines: int) -> None:
            store.save(Coverage(
                campaign.id, "softmax", "", "cpu", "auto", 0, number, 1e9 + 3600 * number, 1.0, 50, 0, lines,
                blockers=json.dumps([blocker]), **counts,
            ))  # fmt: skip
            store.save(replace(campaign, cases=50 * number))

        save(1, 12)
        page = watched(browser, address, wrong)
        page.goto(f"{address}/campaigns/{campaign.id}")
        expect(page.locator("#coverage tbody tr")).to_have_count(1)
        expect(page.locator("#coverage tbody")).to_contain_text("60.0 % of 20")
        expect(page.locator("figure.plot")).to_have_count(0)
        page.click("details#blockers-softmax summary")
        expect(page.locator("details#blockers-softmax")).to_contain_text(HOSTILE)
        save(2, 15)
        expect(page.locator("figure.plot svg")).to_have_count(3, timeout=PATIENCE)
        expect(page.locator("#coverage tbody")).to_contain_text("75.0 % of 20")
        expect(page.locator("details#blockers-softmax td").first).to_be_visible()
        page.set_viewport_size({"width": PHONE, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    assert wrong == []
