"""The API and the pages: what they tell, and what hostile names and data cannot do."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest
from fastapi.testclient import TestClient
from processes import heeding_ctrl_c
from service_files import MakeClient, ServiceFiles
from sqlalchemy.event import listen

from fuzz import cli, corpus
from fuzz.campaign.store import Campaign, FindingRecord, Heartbeat, Job, Occurrence, Statistic, Store
from fuzz.errors import CorpusError
from fuzz.model.entry import Entry
from fuzz.web import campaign_processes, events
from fuzz.web.campaign_processes import CampaignProcesses, open_process
from fuzz.web.entry_plots.client import PlotResult
from fuzz.web.metrics import metrics
from fuzz.web.pages import routes
from fuzz.web.service import Service

HOSTILE = """</td></script><script>alert(1)</script><img src=x onerror=alert(1)>'"&\n\\"""


@pytest.fixture
def campaign(store: Store, files: ServiceFiles) -> Campaign:
    """A campaign as a process that is gone left it, with everything that it tells."""
    made = store.create_campaign("small", "{}", str(files.folder / "corpus"), time.time(), "elsewhere", 4_000_000)
    made = replace(made, state="stopped", cases=1200, seconds=60.0)
    store.save(made)
    store.save(Job(made.id, HOSTILE, HOSTILE, "cpu", HOSTILE, 0, cases=1200, seconds=60.0, new=1, note=HOSTILE))
    store.save(Heartbeat(made.id, HOSTILE, HOSTILE, 7, "busy", HOSTILE, 3, time.time(), 1.0, ""))
    for number, cases in enumerate((100, 1200)):
        wall = time.time() - 60 + 30 * number
        store.save(Statistic(made.id, HOSTILE, "", "cpu", "", 0, number, wall, 1.0, cases, 20.0, number, 0.5, 0.1))
    return made


@pytest.fixture
def hostile(store: Store, campaign: Campaign) -> FindingRecord:
    """A finding of the store whose every text is hostile, and whose path leads elsewhere."""
    made = FindingRecord(HOSTILE, "/etc", "../etc/passwd", HOSTILE, "accuracy", HOSTILE, "value", HOSTILE, "kernel",
                         "open", HOSTILE, {HOSTILE: 3}, 3, HOSTILE, 1.0, time.time())  # fmt: skip
    store.save_finding(
        made, Occurrence(made.id, "k", time.time(), campaign.id, HOSTILE, HOSTILE, 1, 2, 3, seen={"a": HOSTILE})
    )
    return made


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self.handlers += [name for name, _ in attributes if name.startswith("on") or name == "style"]


def test_findings_of_the_corpus_are_there_from_the_start(client: TestClient, files: ServiceFiles) -> None:
    found = client.get("/api/findings").json()
    assert (found["count"], found["findings"][0]["id"]) == (1, files.key)
    assert client.get(f"/api/findings/{files.key}").json()["target"] == "gelu_bw"
    assert len(client.get(f"/api/findings/{files.key}/occurrences").json()) == 1


def test_filters_hold_together(client: TestClient) -> None:
    counts = {
        "oracle=accuracy&status=open": 1, "status=fixed": 0, "target=gelu_bw": 1, "target=GELU": 0, "text=%25": 0,
        "text=elements+wrong": 1, "planted=erf_saturates": 1, "verdict=kernel": 0, "campaign=9": 0,
    }  # fmt: skip
    assert {query: client.get(f"/api/findings?{query}").json()["count"] for query in counts} == counts


def test_what_filters_cannot_be_is_refused(client: TestClient) -> None:
    queries = [
        "oracle=x",
        "limit=0",
        "limit=501",
        "offset=-1",
        "campaign=0",
        "text=%00",
        "unknown=1",
        f"offset={10**20}",
    ]
    for query in queries:
        assert client.get(f"/api/findings?{query}").status_code == 422
        assert client.get(f"/findings?{query}").status_code == 422


def test_no_name_becomes_a_path(client: TestClient) -> None:
    keys = ["..%2f..%2fetc%2fpasswd", "%2e%2e", "%00", "%2fetc%2fpasswd", "a%0ab", "con", ".yaml", "~", "x" * 299,
            "%f0%9f%92%a5", "%ff"]  # fmt: skip
    paths = ["/api/corpus/{}", "/api/findings/{}", "/api/findings/{}/script", "/findings/{}", "/findings/{}/study",
             "/static/{}", "/campaigns/{}"]  # fmt: skip
    for path in paths:
        for key in keys:
            # Written out, since a client would resolve dots before it sends them.
            answer = client.request(
                "GET", httpx2.URL("http://127.0.0.1:8327").copy_with(raw_path=path.format(key).encode())
            )
            assert answer.status_code in (404, 422), (path, key)


def test_an_entry_that_links_out_of_the_corpus_is_none(
    client: TestClient, files: ServiceFiles, service: Service
) -> None:
    secret = files.folder / "secret.yaml"
    secret.write_text("secret: 1\n")
    (files.entry.parent / "dx-sign-00000000.yaml").symlink_to(secret)
    service.corpus_index.invalidate()
    assert client.get("/api/corpus/dx-sign-00000000").status_code == 404
    assert [one["key"] for one in client.get("/api/corpus").json()] == [files.key]


def test_an_entry_is_shown_as_text_never_as_a_page(client: TestClient, files: ServiceFiles) -> None:
    answer = client.get(f"/api/corpus/{files.key}")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text == files.entry.read_text()


def test_a_file_that_is_no_entry_is_told(client: TestClient, files: ServiceFiles, service: Service) -> None:
    (files.entry.parent / "broken.yaml").write_text("format: fuzz-case/1\n!!python/object/apply:os.system [true]\n")
    service.corpus_index.invalidate()
    assert client.get("/findings/broken").status_code == 200
    assert "broken" in client.get("/corpus").text
    assert client.get("/findings/broken/study", headers={"Accept": "text/html"}).status_code == 404


def test_pages_hold_hostile_names_as_text(
    client: TestClient, hostile: FindingRecord, campaign: Campaign, files: ServiceFiles
) -> None:
    pages = ["/", "/findings", f"/campaigns/{campaign.id}", "/corpus", f"/findings/{files.key}", "/help"]
    pages += [
        "/findings?text=%3Cscript%3Ealert(1)",
        "/corpus?text=%22%3E%3Cscript%3E&target=%22%3E%3Cimg%3E",
        "/nowhere",
    ]
    for path in pages:
        answer = client.get(path, headers={"Accept": "text/html"})
        tags = Tags(answer.text)
        assert answer.status_code in (200, 404) and "img" not in tags.found and tags.handlers == []
        assert not re.search(r"<script(?! src=\"/static/)", answer.text)


def test_a_page_shows_a_finding_with_its_history(client: TestClient, files: ServiceFiles) -> None:
    text = client.get(f"/findings/{files.key}").text
    for part in ("accuracy/sign", "erf_saturates", "[1.0, -4.0]", "10/10 runs", "from its entry", "fuzz replay"):
        assert part in text


def test_the_page_of_a_finding_leads_to_the_smaller_case_that_has_replaced_it(
    client: TestClient, files: ServiceFiles, service: Service, store: Store
) -> None:
    (old,) = store.findings()
    smaller = files.entry.rename(files.entry.with_name("dx-sign-0.yaml"))
    store.save_finding(replace(old, id=smaller.stem, path=f"gelu_bw/{smaller.name}"), replaces=old.id)
    service.corpus_index.invalidate()
    for part in ("", "/study"):
        answer = client.get(f"/findings/{files.key}{part}", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/findings/{smaller.stem}{part}")
    assert client.get(f"/api/findings/{files.key}").json()["id"] == smaller.stem
    assert client.get(f"/api/corpus/{files.key}").text == smaller.read_text()


def test_the_page_of_an_entry_that_is_being_replaced_looks_again(
    client: TestClient, files: ServiceFiles, service: Service, campaign: Campaign
) -> None:
    service.store.save(replace(campaign, state="running"))
    files.entry.unlink()
    service.corpus_index.invalidate()
    page = {"accept": "text/html"}
    answer = client.get(f"/findings/{files.key}", headers=page)
    assert (answer.status_code, answer.headers["retry-after"]) == (404, "3")
    assert '<meta http-equiv="refresh" content="3">' in answer.text and "looked for again in 3 s" in answer.text
    unknown = client.get("/findings/nobody", headers=page)
    assert unknown.status_code == 404 and "refresh" not in unknown.text and "retry-after" not in unknown.headers


def test_an_entry_that_could_not_be_read_once_is_read_again(
    client: TestClient, files: ServiceFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(corpus, "read", raise_corpus_error)
        assert "Too many open files" in client.get("/corpus").text
    assert "Too many open files" not in client.get("/corpus").text


def raise_corpus_error(path: Path) -> Entry:
    raise CorpusError(f"cannot read {path}: Too many open files")


def test_a_study_that_failed_says_when_it_is_tried_again(
    client: TestClient, files: ServiceFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = [PlotResult(why="nothing to draw: hung", failed=True), PlotResult(script="pass")]
    monkeypatch.setattr("fuzz.web.entry_plots.client.run_plots", lambda requests, config: iter([results.pop(0)]))
    monkeypatch.setattr("fuzz.web.entry_plots.client.FIRST_PAUSE", 0.001)
    assert 'data-retry="1"' in client.get(f"/findings/{files.key}/study").text
    time.sleep(0.01)
    text = client.get(f"/findings/{files.key}/study").text
    assert "data-retry" not in text and "pass" in text


def test_a_study_holds_plots_and_the_script(client: TestClient, files: ServiceFiles, service: Service) -> None:
    text = client.get(f"/findings/{files.key}/study").text
    assert "dx: error by element" in text and "dx: ULP against x" in text
    script = client.get(f"/api/findings/{files.key}/script")
    compile(script.text, "script", "exec")
    assert script.headers["content-type"].startswith("text/plain") and len(service.plot_cache.results) == 1


def test_targets_load_only_from_configured_folders(
    client: TestClient, files: ServiceFiles, entry: Entry, service: Service
) -> None:
    trap = "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\n@target(\ndef mine(x): ...\n"
    (files.folder / "mine.py").write_text(trap)
    made = corpus.save_entry(
        files.folder / "corpus", replace(entry, case=replace(entry.case, target="mine"), planted="")
    )
    service.corpus_index.invalidate()
    assert "in a configured folder" in client.get(f"/findings/{made.stem}/study").text
    assert client.get(f"/api/findings/{made.stem}/script").status_code == 409
    assert not (files.folder / "ran").exists()


def test_a_status_is_marked_in_the_entry(client: TestClient, files: ServiceFiles) -> None:
    asked = {"status": "accepted", "why": "by design"}
    assert client.post(f"/api/findings/{files.key}/status", json=asked).status_code == 200
    assert (corpus.read(files.entry).status, corpus.read(files.entry).why) == ("accepted", "by design")
    assert client.get(f"/api/findings/{files.key}").json()["status"] == "accepted"
    for wrong in ({"status": "gone", "why": "x"}, {"status": "open", "why": ""}, {"status": "open", "why": "a\nb: c"}):
        assert client.post(f"/api/findings/{files.key}/status", json=wrong).status_code == 422


def test_marking_a_status_reads_no_other_entry(
    client: TestClient, files: ServiceFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a thousand entries the others would take seconds."""
    before, reads = client.get(f"/api/findings/{files.key}").json(), []
    (files.entry.parent / "dx-sign-00000000.yaml").write_text(files.entry.read_text())
    read = corpus.read
    monkeypatch.setattr(corpus, "read", lambda path: reads.append(path) or read(path))
    asked = {"status": "accepted", "why": "by design"}
    assert client.post(f"/api/findings/{files.key}/status", json=asked).status_code == 200
    assert client.get(f"/api/findings/{files.key}").json() == before | {"status": "accepted"}
    assert {path.name for path in reads} <= {files.entry.name}


def test_of_two_folders_with_one_key_lists_and_pages_show_the_same_one(
    files: ServiceFiles, entry: Entry, make_client: MakeClient
) -> None:
    other = corpus.save_entry(files.folder / "other", entry)
    corpus.mark(other, "fixed", "by 2.0")
    for folders, status in ((("corpus", "other"), "open"), (("other", "corpus"), "fixed")):
        with make_client(corpora=tuple(files.folder / name for name in folders)) as client:
            assert client.post("/api/corpus/rebuild", json={}).json()["findings"] == 1
            (listed,) = client.get("/api/findings").json()["findings"]
            assert listed["status"] == status and listed["corpus"] == str(files.folder / folders[0])
            assert f"status: {status}" in client.get(f"/api/corpus/{files.key}").text


def test_a_finding_whose_entry_was_deleted_is_forgotten(
    client: TestClient, files: ServiceFiles, service: Service, campaign: Campaign, hostile: FindingRecord
) -> None:
    service.store.save(replace(campaign, state="running"))
    files.entry.unlink()
    service.corpus_index.invalidate()
    page = {"accept": "text/html"}
    assert "retry-after" in client.get(f"/findings/{files.key}", headers=page).headers
    os.utime(files.entry.parent, (0.0, 0.0))
    answer = client.get(f"/findings/{files.key}", headers=page)
    assert (answer.status_code, "its entry was deleted" in answer.text, "refresh" in answer.text) == (404, True, False)
    # What is in a folder that is not shown here is no less there for that.
    assert [one["id"] for one in client.get("/api/findings").json()["findings"]] == [hostile.id]
    service.store.save_finding(replace(hostile, id="elsewhere", corpus="/on/another/machine"))
    for _ in range(2):
        answer = client.get("/findings/elsewhere", headers=page)
        assert answer.status_code == 404 and "which is not shown here" in answer.text and "refresh" not in answer.text
    assert service.store.find(FindingRecord, "elsewhere")


def test_campaign_files_are_told_with_what_is_wrong_with_them(client: TestClient) -> None:
    told = {one["key"]: one for one in client.get("/api/configs").json()}
    assert told["small"]["wrong"] == "" and told["small"]["told"] == "A test"
    assert "did you mean targets?" in told["wrong"]["wrong"] and "its store is" in told["elsewhere"]["wrong"]
    assert client.post("/api/campaigns", json={"config": "wrong"}).status_code == 409
    assert client.post("/api/campaigns", json={"config": "elsewhere"}).status_code == 409
    for name in ("../configs/small", "/etc/passwd", "small.yaml", "no"):
        assert client.post("/api/campaigns", json={"config": name}).status_code == 404


def test_the_shortest_local_campaign_is_offered_first_and_a_long_one_asks(
    client: TestClient, files: ServiceFiles
) -> None:
    store = files.settings["store"]
    budgets = {
        "a_day": "{time: 24h}\ncluster: ray",
        "b_night": "{time: 8h}",
        "c_cases": "{cases: 9}",
        "minute": "{time: 60s}",
    }
    for name, budget in budgets.items():
        text = f"targets: [gelu_bw]\nstore: {store}\nbudget: {budget}\n"
        (files.folder / "configs" / f"{name}.yaml").write_text(text)
    options = re.findall(r'<option value="([^"]*)"([^>]*)>', client.get("/").text)
    assert [name for name, _ in options] == ["minute", "small", "b_night", "c_cases", "a_day", "elsewhere", "wrong"]
    assert [attributes.strip() for _, attributes in options] == [
        "", "", 'data-question="b_night runs for up to 8 h 0 min on this machine. Start it?"',
        'data-question="c_cases runs without a limit of time on this machine. Start it?"',
        'data-question="a_day runs for up to 1 d 0 h on a cluster (ray). Start it?"', "disabled", "disabled",
    ]  # fmt: skip


def test_a_campaign_is_started_once_and_its_last_words_are_kept(
    client: TestClient, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = f"while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)"
    program = f"import os, sys, time\n{waits}\nsys.exit('wrong <script>')"
    monkeypatch.setattr(campaign_processes, "PROGRAM", program)
    assert client.post("/api/campaigns", json={"config": "small"}).status_code == 201
    assert client.post("/api/campaigns", json={"config": "small", "resume": True}).status_code == 409
    assert "small is starting" in client.get("/").text
    (tmp_path / "go").touch()
    service.processes.started["small"].process.wait()
    service.processes.started["small"].process.returncode = 2
    assert "wrong {&lt;script&gt;}" in client.get("/").text.replace("wrong &lt;", "wrong {&lt;").replace(
        "pt&gt;<", "pt&gt;}<"
    )


def test_a_campaign_is_told_with_lanes_workers_and_trends(client: TestClient, campaign: Campaign) -> None:
    told = client.get(f"/api/campaigns/{campaign.id}").json()
    assert (told["summary"]["state"], told["summary"]["cases_per_second"]) == ("stopped", 20.0)
    assert (told["lanes"][0]["cases_per_second"], told["workers"][0]["beats"]) == (20.0, 3)
    statistics = client.get(f"/api/campaigns/{campaign.id}/statistics?limit=1").json()
    assert [one["cases"] for one in statistics] == [100]
    after = client.get(f"/api/campaigns/{campaign.id}/statistics?after={statistics[0]['id']}").json()
    assert [one["cases"] for one in after] == [1200]
    assert client.get(f"/campaigns/{campaign.id}").text.count("<svg") == 2


def test_a_campaigns_page_says_that_it_has_more_findings_than_it_lists(
    client: TestClient, campaign: Campaign, hostile: FindingRecord, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save_finding(replace(hostile, id="two"), Occurrence("two", "k", time.time(), campaign.id))
    more = f"/findings?campaign={campaign.id}"
    assert more not in client.get(f"/campaigns/{campaign.id}").text
    monkeypatch.setattr(routes, "PAGE", 1)
    text = client.get(f"/campaigns/{campaign.id}").text
    assert "The 1 seen last of 2" in text and more in text


def test_only_the_newest_of_a_name_can_be_resumed(client: TestClient, campaign: Campaign, store: Store) -> None:
    assert client.get("/api/campaigns").json()[0]["resumable"]
    store.create_campaign("small", "{}", "", time.time(), "elsewhere", 1)
    assert [one["resumable"] for one in client.get("/api/campaigns").json()] == [False, False]
    assert client.post(f"/api/campaigns/{campaign.id}/resume", json={}).status_code == 409


def test_of_two_files_with_one_name_the_one_that_a_campaign_ran_goes_on_with_it(
    client: TestClient, campaign: Campaign, files: ServiceFiles, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has another corpus and other targets."""
    text = (files.folder / "configs" / "small.yaml").read_text()
    (files.folder / "configs" / "another.yaml").write_text(text.replace("gelu_bw", "silu") + "name: small\n")
    started = []
    monkeypatch.setattr(service.processes, "start", lambda key, resume: started.append(key) or SimpleNamespace(
        config=key, process=SimpleNamespace(pid=1)))  # fmt: skip
    url = f"/api/campaigns/{campaign.id}"
    refused = client.post(f"{url}/resume", json={})
    assert refused.status_code == 409 and "another, small are files of campaigns 'small'" in refused.json()["detail"]
    assert not client.get(url).json()["summary"]["resumable"]
    for key in ("small", "another"):
        service.store.save(replace(campaign, config=service.processes.configs()[key].content))
        assert client.get(url).json()["summary"]["resumable"]
        assert client.post(f"{url}/resume", json={}).json()["config"] == key
    assert started == ["small", "another"]


def test_a_process_that_is_no_campaign_is_never_stopped(client: TestClient, store: Store, campaign: Campaign) -> None:
    for pid in (os.getpid(), 1, 0, -1, 2**22 + 5):
        other = replace(campaign, state="running", host=socket.gethostname(), pid=pid)
        store.save(other)
        with open_process(other) as descriptor:
            assert descriptor is None
        assert client.post(f"/api/campaigns/{campaign.id}/stop", json={}).status_code == 409
        assert client.get(f"/api/campaigns/{campaign.id}").json()["summary"]["state"] == "died"


def test_numbers_without_end_are_no_error(client: TestClient, store: Store, campaign: Campaign) -> None:
    store.save(Job(campaign.id, "t", "", "cpu", "auto", 0, worst=float("inf")))
    assert client.get(f"/api/campaigns/{campaign.id}").json()["summary"]["worst"] is None
    assert "+Inf" in client.get("/metrics").text and client.get(f"/campaigns/{campaign.id}").status_code == 200


def test_metrics_are_lines_that_prometheus_reads(service: Service, campaign: Campaign) -> None:
    label = r'[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"'
    sample = re.compile(rf"[a-z_]+(?:\{{{label}(?:,{label})*\}})? (?:[-+0-9.e]+|NaN|[+-]Inf)")
    kinds: dict[str, str] = {}
    for line in metrics(service).decode().splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds and kind in ("gauge", "counter") and name.endswith("_total") == (kind == "counter")
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            assert sample.fullmatch(line), line
            assert re.split(r"[{ ]", line)[0] in kinds
    assert "fuzz_cases_total" in kinds


def test_events_tell_of_a_new_finding(service: Service, store: Store, campaign: Campaign) -> None:
    before = events.snapshot(service)
    assert before == events.snapshot(service)
    store.save_finding(
        FindingRecord("new", "", "", "t", "accuracy", "y", "value", "", "kernel", "open", "", {}, 1, "", 1.0, 2.0)
    )
    after = events.snapshot(service)
    assert after["findings"] == before["findings"] + 1 and "new" in [key for key, *_ in after["latest"]]


def test_open_pages_share_one_reading_of_the_store_and_of_each_campaign_file(
    service: Service, store: Store, campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work of a look must not grow with pages, stopped campaigns and looks: only a change costs anything."""
    parsed: list[Path] = []
    statements: list[str] = []
    load_config = campaign_processes.load_config
    monkeypatch.setattr(campaign_processes, "load_config", lambda path: parsed.append(path) or load_config(path))
    for _ in range(20):
        made = store.create_campaign("small", "{}", "", time.time(), "elsewhere", 4_000_000)
        store.save(replace(made, state="stopped"))
    listen(store.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    first = events.snapshot(service)
    assert (sum("SELECT" in text for text in statements), len(parsed)) == (6, 3)
    assert [events.snapshot(service) for _ in range(50)] == [first] * 50
    assert (sum("SELECT" in text for text in statements), len(parsed)) == (6, 3)
    assert [one["resumable"] for one in first["campaigns"]] == [True] + [False] * 20
    store.save(replace(campaign, cases=1300))
    assert events.snapshot(service)["campaigns"][-1]["cases"] == 1300
    config = service.settings.configs[0] / "small.yaml"
    config.write_text(config.read_text().replace("gelu_bw", "gelu_bw, silu"))
    assert events.snapshot(service)["campaigns"] and len(parsed) == 4


def test_the_command_of_a_campaign_names_its_file_alone(files: ServiceFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr("subprocess.Popen", lambda command, **_: commands.append(command))
    made = CampaignProcesses((files.folder / "configs",), files.settings["store"])
    made.start("small", resume=True).log.close()
    assert commands[0][-3:] == ["campaign", str(files.folder / "configs" / "small.yaml"), "--resume"]


def test_a_campaign_imports_nothing_of_the_folder_that_the_service_runs_in(
    files: ServiceFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files.folder)
    (files.folder / "typer.py").write_text("import pathlib; pathlib.Path('ran').touch()\n")
    made = CampaignProcesses((files.folder / "configs",), files.settings["store"])
    (files.folder / "configs" / "none.yaml").write_text(f"targets: [none]\nstore: {files.settings['store']}\n")
    started = made.start("none", resume=False)
    assert started.process.wait(60) == 2 and "no target fits 'none'" in started.read_log_tail()
    made.close()
    assert not (files.folder / "ran").exists()


def test_a_folder_that_is_no_campaign_file_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").mkdir()
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe")
    os.mkfifo(tmp_path / "pipe.yaml")
    assert CampaignProcesses((tmp_path,), "sqlite:///s").configs() == {}


def test_the_schema_of_the_api_needs_nothing_from_outside(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    assert schema["openapi"].startswith("3.") and "/api/findings/{key}/script" in schema["paths"]
    assert client.get("/docs").status_code == client.get("/redoc").status_code == 404
    assert "http" not in client.get("/help").text.replace("http-equiv", "")


def test_a_finding_that_is_saved_while_the_corpus_is_read_is_kept(
    client: TestClient, files: ServiceFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A campaign may save an entry after the folder was listed and before the store was asked."""
    monkeypatch.setattr(corpus, "entry_files", lambda paths: iter(()))
    assert client.post("/api/corpus/rebuild", json={}).json()["forgotten"] == 0
    files.entry.unlink()
    assert client.post("/api/corpus/rebuild", json={}).json()["forgotten"] == 1


def test_a_campaign_that_another_service_started_is_stopped_as_by_ctrl_c(
    client: TestClient, store: Store, campaign: Campaign
) -> None:
    waits = "import time\ntry:\n    print(1, flush=True); time.sleep(600)\nexcept KeyboardInterrupt:\n    exit(7)"
    line = heeding_ctrl_c(sys.executable, "-c", waits, "campaign")
    with subprocess.Popen(line, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        store.save(replace(campaign, state="running", host=socket.gethostname(), pid=process.pid))
        assert client.get("/api/campaigns").json()[0]["state"] == "running"
        assert client.post(f"/api/campaigns/{campaign.id}/stop", json={}).status_code == 200
        assert process.wait(240) == 7
    assert client.get("/api/campaigns").json()[0]["state"] == "died"


def test_a_campaign_is_reported_by_name_and_number(
    client: TestClient, campaign: Campaign, files: ServiceFiles, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    found = store.find(FindingRecord, files.key)
    assert found is not None
    store.save_finding(found, Occurrence(found.id, "slice", time.time(), campaign.id))
    out = files.folder / "report.html"
    line = ["--out", str(out), "--store", files.settings["store"], "--no-plots"]
    for name in ("small", str(campaign.id)):
        assert cli.exit_code(["report", name, *line]) == 0
        text = out.read_text(encoding="utf-8")
        assert f"Campaign small #{campaign.id}" in text and "accuracy/sign" in text and "50.0\u2009%" not in text
        tags = Tags(text)
        assert tags.found.count("script") == 1 and "img" not in tags.found
    assert cli.exit_code(["report", "nobody", *line]) == 2
    assert "nobody is neither a file, a folder nor a campaign" in capsys.readouterr().err
    missing = files.folder / "x.sqlite"
    assert cli.exit_code(["report", "small", "--out", str(out), "--store", f"sqlite:///{missing}"]) == 2
    assert "x.sqlite does not exist; --store names" in capsys.readouterr().err and not missing.exists()
    assert cli.exit_code(["report", "small", *line, "--backend", "tpu"]) == 2
    assert "unknown backend 'tpu'" in capsys.readouterr().err
