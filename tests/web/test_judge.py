"""Solutions that are sent to the service: who may, what is refused, what becomes of them, and what a page shows."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from judge_stub import make_stub
from service_files import TOKEN, MakeClient, ServiceFiles
from services import wait_until_answered

from fuzz.campaign.store import Store, Submission
from fuzz.errors import StoreError, UsageError
from fuzz.web import judge_queue
from fuzz.web.judge_queue import MAX_TRIES, JudgeQueue, own_name
from fuzz.web.settings import Settings
from tests.judge.problems import RELU, as_solution

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>"
GIVEN = {"problem": "p", "solution": "RIGHT", "backend": "cpu"}


@pytest.fixture
def judging(make_client: MakeClient, files: ServiceFiles) -> Iterator[TestClient]:
    """A client of a service that judges by a stub, and lets files of a folder be named."""
    (files.folder / "given" / "task").mkdir(parents=True)
    (files.folder / "given" / "relu.py").write_text("p")
    (files.folder / "given" / "task" / "task.yml").write_text("t")
    (files.folder / "secret.py").write_text("secret")
    (files.folder / "given" / "link.py").symlink_to(files.folder / "secret.py")
    client = make_client(judge=True, token=TOKEN, judge_files=(files.folder / "given",))
    client.headers.update(HEADERS)
    client.app.state.fuzz.judge_queue.make_host = make_stub  # type: ignore[attr-defined]
    with client as entered:
        yield entered


def wait_for(get: Callable[[], dict[str, Any]], *states: str) -> dict[str, Any]:
    """The submission, once it is in one of these states."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        found = get()
        if found["state"] in states:
            return found
        time.sleep(0.05)
    raise AssertionError(f"it is not {states} after 300 s: {found}")


def test_code_that_others_send_needs_a_token_also_on_loopback(files: ServiceFiles, judging: TestClient) -> None:
    with pytest.raises(UsageError, match="--judge runs code that others send"):
        Settings(**files.settings, judge=True)
    assert judging.post("/api/judge", json=GIVEN, headers={"Authorization": ""}).status_code == 401


def test_a_service_that_was_not_asked_to_judges_nothing(client: TestClient) -> None:
    for answer in (client.post("/api/judge", json=GIVEN), client.get("/api/judge"), client.get("/judgements")):
        assert answer.status_code == 404
    assert "without --judge" in client.post("/api/judge", json=GIVEN).json()["detail"]
    assert "/judgements" not in client.get("/").text


def test_the_same_solution_is_judged_once(judging: TestClient) -> None:
    first = judging.post("/api/judge", json={**GIVEN, "name": "mine"})
    assert first.status_code == 202 and re.fullmatch("[0-9a-f]{32}", first.json()["id"])
    key = first.json()["id"]
    found = wait_for(lambda: judging.get(f"/api/judge/{key}").json(), "judged")
    assert (found["verdict"], found["score"], found["codes"], found["name"]) == ("RIGHT", 1.0, [], "mine")
    again = judging.post("/api/judge", json={**GIVEN, "name": "other"}).json()
    assert (again["id"], again["state"], again["name"]) == (key, "judged", "mine")
    assert judging.post("/api/judge", json={**GIVEN, "seconds": 11}).json()["id"] != key
    assert judging.post("/api/judge", json={**GIVEN, "solution": "WRONG"}).json()["id"] != key
    assert judging.get("/api/judge").json()["submissions"][-1]["id"] == key


def test_what_could_not_be_judged_is_tried_again(judging: TestClient) -> None:
    given = {**GIVEN, "solution": "ends"}
    key = judging.post("/api/judge", json=given).json()["id"]
    found = wait_for(lambda: judging.get(f"/api/judge/{key}").json(), "judged")
    assert found["codes"] == ["machine/crashed"]
    judging.app.state.fuzz.judge_queue.close()  # type: ignore[attr-defined]
    again = judging.post("/api/judge", json=given).json()
    assert (again["id"], again["state"], again["verdict"], again["judgement"]) == (key, "queued", None, None)
    assert [one["id"] for one in judging.get("/api/judge").json()["submissions"]] == [key]


def test_files_of_an_allowed_folder_may_be_named(judging: TestClient) -> None:
    named = {"problem_file": "relu.py", "solution": "RIGHT", "backend": "cpu"}
    assert judging.post("/api/judge", json=named).json()["id"] == judging.post("/api/judge", json=GIVEN).json()["id"]
    task = {"format": "gpumode", "solution": "RIGHT", "backend": "cpu"}
    by_name = judging.post("/api/judge", json={**task, "problem_file": "task"})
    by_text = judging.post("/api/judge", json={**task, "problem": {"task.yml": "t"}})
    assert by_name.status_code == 202 and by_name.json()["id"] == by_text.json()["id"]


def test_a_module_of_operations_has_no_problem(judging: TestClient) -> None:
    sent = judging.post("/api/judge", json={"format": "ops", "solution": "WRONG", "backend": "cpu"})
    assert sent.status_code == 202
    found = wait_for(lambda: judging.get(f"/api/judge/{sent.json()['id']}").json(), "judged")
    assert (found["format"], found["verdict"]) == ("ops", "WRONG")


REFUSED: list[dict[str, Any]] = [
    {"problem_file": "../secret.py", "problem": None},
    {"problem_file": "/etc/passwd", "problem": None},
    {"problem_file": "link.py", "problem": None},
    {"problem_file": "nowhere.py", "problem": None},
    {"problem_file": "task", "problem": None},
    {"problem_file": "relu.py"},
    {"problem": None},
    {"solution": None},
    {"solution": None, "solution_file": "task"},
    {"problem": {"a.py": "x"}},
    {"format": "gpumode"},
    {"format": "gpumode", "problem": {"../a": "x"}},
    {"format": "script"},
    {"format": "ops"},
    {"format": "pytorch"},
    {"backend": "tpu"},
    {"seconds": -1},
    {"seconds": 1e9},
    {"memory_mb": -1},
    {"solution": "a\0b"},
    {"unknown": 1},
]


def test_what_cannot_be_judged_is_refused(judging: TestClient) -> None:
    for change in REFUSED:
        answer = judging.post("/api/judge", json={**GIVEN, **change})
        assert answer.status_code in (400, 422) and "secret" not in answer.text, change
    assert judging.get("/api/judge").json()["counts"] == {}


def test_bodies_and_ids_are_bounded(judging: TestClient) -> None:
    assert judging.post("/api/judge", json={**GIVEN, "solution": "x" * (1 << 21)}).status_code == 422
    assert judging.post("/api/judge", json={**GIVEN, "solution": "x" * (5 << 20)}).status_code == 413
    assert judging.post("/api/campaigns", json={"config": "x" * (1 << 17)}).status_code == 413
    for key in ("0" * 31, "../x", "0" * 32):
        assert judging.get(f"/api/judge/{key}").status_code in (404, 422)


def test_pages_show_what_was_sent_as_text(judging: TestClient) -> None:
    sent = judging.post("/api/judge", json={"problem": HOSTILE, "solution": HOSTILE, "name": HOSTILE, "backend": "cpu"})
    key = sent.json()["id"]
    wait_for(lambda: judging.get(f"/api/judge/{key}").json(), "judged")
    for path in ("/judgements", f"/judgements/{key}"):
        answer = judging.get(path, headers={"Accept": "text/html"})
        assert answer.status_code == 200 and "<img" not in answer.text and "<script>alert" not in answer.text
        assert "&lt;script&gt;alert(1)" in answer.text
    assert f'href="/judgements/{key}"' in judging.get("/judgements").text
    assert 'href="/judgements"' in judging.get("/").text


def make_submission(store: Store, key: str, solution: str = "RIGHT") -> Submission:
    made = Submission(key, "", "kernelbench", '{"": "p"}', solution, "cpu", 0.0, 0, 0, time.time())
    return store.add_submission(made)


def test_what_a_killed_service_was_judging_is_judged_by_the_next_one(store: Store) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host, _, start = own_name().split(" ")
    for key, owner in (("a", f"{host} {ended.pid} {start}"), ("b", f"{host} {os.getpid()} 1"), ("c", own_name())):
        make_submission(store, key)
        assert store.take_submission(owner, time.time())
    queue = JudgeQueue(store, 1, make_stub)
    queue.start()
    for key in ("a", "b"):
        wait_for(lambda key=key: vars(store.find(Submission, key)), "judged")  # type: ignore[misc]
    queue.close()
    still = store.find(Submission, "c")
    assert still is not None and (still.state, still.tries) == ("running", 1)


def test_a_submission_that_ends_its_services_is_given_up(store: Store) -> None:
    make_submission(store, "a")
    for _ in range(MAX_TRIES):
        assert store.take_submission("here 1 1", 1.0)
        store.update_submission("a", "here 1 1", state="queued", owner="")
    queue = JudgeQueue(store, 1, make_stub)
    queue.start()
    found = wait_for(lambda: vars(store.find(Submission, "a")), "judged")
    queue.close()
    assert found["verdict"] == "UNSUPPORTED" and json.loads(found["judgement"])["codes"] == ["machine/crashed"]


def test_a_service_that_ends_leaves_what_it_was_judging_to_the_next_one(store: Store) -> None:
    make_submission(store, "a", "hangs")
    queue = JudgeQueue(store, 1, make_stub)
    queue.start()
    wait_for(lambda: vars(store.find(Submission, "a")), "running")
    queue.close()
    assert [(one.state, one.owner) for one in store.read(Submission)] == [("queued", "")]


def judge_with_failures(
    store: Store, monkeypatch: pytest.MonkeyPatch, place: Any, name: str, error: Exception, times: int
) -> dict[str, Any]:
    """The submission once it is judged, though a function fails so many times at first."""
    wrapped, left = getattr(place, name), [error] * times

    def fail(*arguments: Any, **options: Any) -> Any:
        if left:
            raise left.pop()
        return wrapped(*arguments, **options)

    make_submission(store, "a")
    monkeypatch.setattr(judge_queue, "LOOK_SECONDS", 0.01)
    queue = JudgeQueue(store, 1, make_stub)
    with monkeypatch.context() as patch:
        patch.setattr(place, name, fail)
        queue.start()
        try:
            return wait_for(lambda: vars(store.find(Submission, "a")), "judged")
        finally:
            queue.close()


def test_a_machine_that_lacks_something_for_a_while_judges_later(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    found = judge_with_failures(store, monkeypatch, judge_queue, "temporary_folder", full, 2 * MAX_TRIES)
    assert (found["verdict"], found["tries"]) == ("RIGHT", 1)


def test_the_files_of_a_killed_service_are_removed(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = Path(tempfile.mkdtemp(prefix="fuzz-submission-"))
    os.utime(left, (0, 0))
    assert judge_with_failures(store, monkeypatch, judge_queue, "write_files", OSError(), 0)["verdict"] == "RIGHT"
    assert not left.exists()


def test_a_submission_whose_files_cannot_be_written_is_given_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(errno.ENAMETOOLONG, "File name too long")
    found = judge_with_failures(store, monkeypatch, judge_queue, "write_files", error, 1000)
    assert found["verdict"] == "UNSUPPORTED" and json.loads(found["judgement"])["solution"] == "solution/solution.py"


def test_what_the_store_does_not_take_is_judged_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # The judgement is not taken, nor is the submission released.
    error = StoreError("the database does not answer")
    found = judge_with_failures(store, monkeypatch, store, "update_submission", error, 2)
    assert (found["verdict"], found["tries"]) == ("RIGHT", 2)


def test_a_sign_of_life_that_the_store_does_not_take_ends_no_judgement(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_queue, "HEARTBEAT_SECONDS", -1.0)
    error = StoreError("the database does not answer")
    found = judge_with_failures(store, monkeypatch, store, "update_submission", error, 1)
    assert (found["verdict"], found["tries"]) == ("RIGHT", 1)


@contextmanager
def serve(folder: Path) -> Iterator[httpx2.Client]:
    """A service in a process of its own, which is killed in the end, and its client."""
    store = f"sqlite:///{folder}/store.sqlite"
    command = ["serve", "--judge", "--port", "0", "--store", store, "--corpus", str(folder)]
    environment = {**os.environ, "FUZZ_TOKEN": TOKEN}
    with subprocess.Popen(
        [sys.executable, "-m", "fuzz", *command], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stderr is not None
            address = process.stderr.readline().split()[-1]
            wait_until_answered(address.rstrip("/"))
            with httpx2.Client(base_url=address, headers=HEADERS, timeout=120) as client:
                yield client
        finally:
            process.kill()


def test_a_solution_is_judged_though_its_service_is_killed(tmp_path: Path) -> None:
    body = {"problem": RELU, "solution": as_solution(RELU).replace("torch.relu(x)", "0 * x"), "backend": "cpu"}
    with serve(tmp_path) as client:
        key = client.post("/api/judge", json=body).json()["id"]
        wait_for(lambda: client.get(f"/api/judge/{key}").json(), "running", "judged")
    with serve(tmp_path) as client:
        found = wait_for(lambda: client.get(f"/api/judge/{key}").json(), "judged")
    assert (found["verdict"], found["score"], found["codes"]) == ("WRONG", 0.0, ["accuracy/value"]), found
    assert found["judgement"]["solution"] == "solution/solution.py"
