"""Who is answered, and what other sites' pages cannot do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from service_files import TOKEN, MakeClient, ServiceFiles

from fuzz import cli
from fuzz.errors import UsageError
from fuzz.web.auth import COOKIE, LARGEST_BODY, MAX_WRONG, WrongTokens, session_cookie
from fuzz.web.settings import Settings

PAGES = ("/", "/findings", "/corpus", "/help", "/metrics", "/openapi.json", "/api/findings", "/api/events",
         "/static/fuzz.css", "/campaigns/1", "/nowhere")  # fmt: skip
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def test_on_loopback_only_its_own_names_are_answered(client: TestClient) -> None:
    others = ["evil.example", "evil.example:8327", "127.0.0.1.evil.example", "", "localhost@evil.example", "[::1",
              "169.254.1.1", "localhost.evil.example",
              "evil@127.0.0.1", "127.0.0.1:1 folded", "127.0.0.1/x"]  # fmt: skip
    for host in others:
        assert client.get("/api/findings", headers={"Host": host}).status_code == 421
    for host in ["localhost", "localhost:8327", "127.0.0.1:1", "[::1]:8327", "127.8.9.1"]:
        assert client.get("/api/findings", headers={"Host": host}).status_code == 200


def test_with_a_token_nothing_is_answered_without_it(make_client: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.web.auth.MAX_WRONG", 1000)
    client = make_client(token=TOKEN)
    wrong: list[dict[str, str]] = [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}]
    wrong += [
        {"Cookie": f"{COOKIE}={TOKEN}"},
        {"Cookie": f"{COOKIE}={session_cookie('other')}"},
        {"Cookie": "\xff=;;=\x01"},
    ]
    wrong += [{"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": "Bearer "}, {"Authorization": "Bearer \xe9"}]
    for path in PAGES:
        for headers in wrong:
            raw = {name: value.encode("latin-1") for name, value in headers.items()}
            assert client.get(path, headers=raw).status_code == 401  # type: ignore[arg-type]
    assert client.post("/api/campaigns", json={"config": "small"}).status_code == 401
    for path in ("/", "/findings", "/metrics", "/static/fuzz.css"):
        assert client.get(path, headers=BEARER).status_code == 200


def test_a_browser_is_led_to_the_login_and_stays_logged_in(make_client: MakeClient) -> None:
    client = make_client(token=TOKEN)
    led = client.get("/findings", headers={"Accept": "text/html"})
    assert (led.status_code, led.headers["location"]) == (303, "/login")
    shown = client.get("/login")
    assert shown.status_code == 200 and "script" not in shown.text and "/static" not in shown.text
    assert client.post("/login", data={"token": "wrong"}).status_code == 401
    entered = client.post("/login", data={"token": TOKEN})
    assert entered.status_code == 303
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and TOKEN not in cookie
    assert client.get("/findings").status_code == 200


def test_tokens_are_not_found_by_trying(make_client: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.web.app.WRONG_TOKEN_DELAY", 0.0)
    wrong: list[dict[str, str]] = [{"Authorization": "Bearer wrong"}, {"Cookie": f"{COOKIE}=wrong"}]
    client = make_client(token=TOKEN)
    statuses = [client.get("/metrics", headers=wrong[number % 2]).status_code for number in range(MAX_WRONG - 1)]
    assert statuses == [401] * (MAX_WRONG - 1) and client.get("/metrics", headers=BEARER).status_code == 200
    assert client.post("/login", data={"token": "wrong"}).status_code == 401
    for headers in (*wrong, BEARER):
        assert client.get("/metrics", headers=headers).status_code == 429
    assert client.post("/login", data={"token": TOKEN}).status_code == 429
    assert client.get("/login").status_code == 200 and client.get("/metrics").status_code == 401
    monkeypatch.setattr("fuzz.web.auth.WINDOW", 0.0)
    assert client.get("/metrics", headers=BEARER).status_code == 200


def test_the_wrong_tokens_of_one_client_cost_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.web.auth.MAX_CLIENTS", 3)
    wrong = WrongTokens()
    for address in ("a", *["b"] * MAX_WRONG, "c"):
        wrong.add(address)
    assert [wrong.seconds_left(address) > 0 for address in "abcd"] == [False, True, False, False]
    wrong.add("d")
    assert list(wrong.counts) == ["b", "c", "d"]


@pytest.mark.parametrize(
    "token", ["", " ", "\u00e9" * 16, "\ud800", "x" * 100_000, f"{TOKEN} ", TOKEN.upper(), f"{TOKEN}\0"]
)
def test_only_the_token_itself_logs_in(make_client: MakeClient, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setattr("fuzz.web.app.WRONG_TOKEN_DELAY", 0.0)
    client, form = make_client(token=TOKEN), {"Content-Type": "application/x-www-form-urlencoded"}
    body = b"token=" + token.encode("utf-8", "surrogatepass")
    answer = client.post("/login", content=body, headers=form)
    assert answer.status_code in (401, 413) and "set-cookie" not in answer.headers
    assert client.get(f"/metrics?token={TOKEN}").status_code == 401


def test_a_login_without_a_token_set_lets_nobody_in(client: TestClient) -> None:
    assert client.post("/login", data={"token": ""}).status_code == 401


CHANGES: list[tuple[dict[str, str], int]] = [
    ({"Content-Type": "text/plain"}, 415),
    ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ({"Content-Type": "multipart/form-data; boundary=application/json"}, 415),
    ({"Content-Type": "application/json", "Origin": "http://evil.example"}, 403),
    ({"Content-Type": "application/json", "Origin": "null"}, 403),
    ({"Content-Type": "application/json", "Origin": "http://127.0.0.1:9"}, 403),
    ({"Content-Type": "application/json", "Sec-Fetch-Site": "cross-site"}, 403),
    ({"Content-Type": "application/json", "Sec-Fetch-Site": "same-site"}, 403),
    ({"Content-Type": "application/json", "Origin": "http://127.0.0.1:8327"}, 200),
    ({"Content-Type": "application/json; charset=utf-8", "Sec-Fetch-Site": "same-origin"}, 200),
]


def test_what_changes_something_is_json_from_our_own_pages(client: TestClient) -> None:
    for headers, status in CHANGES:
        assert client.post("/api/corpus/rebuild", content="{}", headers=headers).status_code == status, headers


def test_pages_of_other_sites_may_link_here_and_nothing_else(client: TestClient, files: ServiceFiles) -> None:
    """An image or script of another site's page would run a case, or tell by its size what is here."""
    for site in ("cross-site", "same-site"):
        for mode in ("no-cors", "cors", "websocket"):
            for path in (f"/findings/{files.key}/study", "/static/live.js", "/api/findings"):
                asked = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
                assert client.get(path, headers=asked).status_code == 403
        assert client.get("/", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}).status_code == 200


def test_a_preflight_of_another_site_is_not_answered(client: TestClient) -> None:
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    answer = client.options("/api/campaigns", headers=asked)
    assert answer.status_code == 405 and not [name for name in answer.headers if name.startswith("access-control")]


def test_every_answer_carries_the_policy(client: TestClient) -> None:
    for path in ("/", "/api/findings", "/nowhere", "/static/live.js", "/metrics"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")


def test_a_large_body_is_refused_whatever_its_length_is_said_to_be(client: TestClient) -> None:
    assert client.post("/api/campaigns", json={"config": "x" * LARGEST_BODY}).status_code == 413
    bad = {"Content-Length": "nonsense", "Content-Type": "application/json"}
    assert client.post("/api/campaigns", content=b"{}", headers=bad).status_code == 413
    parts = (b"x" * 4096 for _ in range(LARGEST_BODY // 4096 + 2))
    streamed = client.post("/api/campaigns", content=parts, headers={"Content-Type": "application/json"})
    assert streamed.status_code in (400, 413, 422)


def test_websockets_are_closed(app: FastAPI) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    asyncio.run(app.middleware_stack or app.build_middleware_stack()({"type": "websocket", "path": "/"}, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com", ""])
def test_elsewhere_than_on_loopback_a_token_is_needed(files: ServiceFiles, host: str) -> None:
    with pytest.raises(UsageError, match="give --token or set FUZZ_TOKEN"):
        Settings(**files.settings, host=host)
    with pytest.raises(UsageError, match="at least 16"):
        Settings(**files.settings, host=host, token="short")
    assert not Settings(**files.settings, host=host, token=TOKEN).loopback
    with pytest.raises(UsageError, match="--corpus .*test_auth.py is no folder"):
        Settings(**{**files.settings, "corpora": (Path(__file__),)})


def test_the_command_says_so_in_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUZZ_TOKEN", raising=False)
    assert cli.exit_code(["serve", "--host", "0.0.0.0"]) == 2
    due = "fuzz: --host 0.0.0.0 can be reached from elsewhere: give --token or set FUZZ_TOKEN\n"
    assert capsys.readouterr().err == due


def test_a_port_that_is_taken_is_one_line(
    files: ServiceFiles, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    monkeypatch.chdir(files.folder)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.exit_code(["serve", "--port", str(port)]) == 2
    assert capsys.readouterr().err == f"fuzz: cannot listen on 127.0.0.1:{port}: Address already in use\n"
