"""Requests, connections and records that attack the service; each attack has a service of its own."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import quote

from benchmarks.attacks.attack import FellError, Kind
from benchmarks.attacks.kinds.campaign_files import GOOD
from benchmarks.attacks.kinds.entries import HTML, MARKUP, MESSAGE
from benchmarks.attacks.kinds.entry_texts import BASE
from benchmarks.attacks.kinds.service_process import HOST, KEY, OK, REFUSED, Service
from benchmarks.attacks.trial import Trial, require
from fuzz.worker.system import resident

KIND = Kind("the service")
TOKEN = "a-token-of-24-characters"
JSON = {"Content-Type": "application/json"}


def asks(trial: Trial, requests: Iterator[tuple[Any, ...]], allowed: Sequence[int]) -> None:
    with Service(trial) as service:
        for request in requests:
            service.ask(*request, allowed=allowed)


@KIND.attack("the names of this machine are answered, every other one is refused by a status of 4xx")
def names_of_hosts(trial: Trial) -> None:
    """Sends 23 names of hosts, of which some lead here by tricks."""
    bad = (
        "evil.com", "127.0.0.1.evil.com", "localhost.evil.com", "127.0.0.1@evil.com", "evil.com#127.0.0.1", "127.1",
        "2130706433", "0x7f000001", "0.0.0.0", "127.0.0.1, evil.com", "evil.com:127.0.0.1", "localhost\\.evil.com",
        "[::ffff:127.0.0.1]", "128.0.0.1", "[::1", "localhost/../evil.com", "localhost%00.evil.com",
        "evil.com?localhost", None,
    )  # fmt: skip
    with Service(trial) as service:
        for host in ("localhost", f"127.0.0.1:{service.port}", "[::1]", "127.9.9.9"):
            service.ask("GET", "/api/configs", host=host, allowed=OK)
        for host in bad:
            service.ask("GET", "/api/configs", host=host, allowed=REFUSED)


@KIND.attack("every request is refused by a status of 4xx, and no campaign starts")
def requests_of_other_sites(trial: Trial) -> None:
    """Starts campaigns as pages of other sites do: by forms, other origins, other types of content, frames, methods."""
    path, body = "/api/campaigns", json.dumps({"config": "small"}).encode()
    headers: list[dict[str, str]] = [
        {}, {"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=application/json"},
        {"Content-Type": "text/plain; application/json"},
        {**JSON, "Origin": "http://evil.com"}, {**JSON, "Origin": "null"}, {**JSON, "Origin": "http://127.0.0.1:1"},
        {**JSON, "Sec-Fetch-Site": "same-site"}, {**JSON, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    ]  # fmt: skip
    with Service(trial) as service:
        for one in headers:
            service.ask("POST", path, one, body, allowed=REFUSED)
        service.ask("GET", f"{path}?_method=POST&config=small", {"X-HTTP-Method-Override": "POST"})
        require(json.loads(service.ask("GET", path, allowed=OK)) in ([], {"campaigns": []}), "a campaign has started")


@KIND.attack("each is answered by a status of 2xx or 4xx, and holds nothing of another file")
def paths_upwards_and_injection(trial: Trial) -> None:
    """Asks for paths that lead upwards, encoded in many ways, and for filters that hold SQL, NUL and large numbers."""
    paths = [
        "/static/..%2f..%2f..%2f..%2fetc%2fpasswd", "/static/%2e%2e/%2e%2e/render.py", "/static//etc/passwd",
        "/static/..\\x",
        "/api/corpus/..%2f..%2f..%2fetc%2fpasswd", "/api/corpus/%2e%2e/%2e%2e/etc/passwd", "/findings/..%2f..%2fx",
        "/api/findings/x'%20or%201=1--", "/api/findings?text=%25%27%20or%201%3D1--",
        "/api/findings?text=%00&target=%ff",
        "/api/findings?target=x%27;drop%20table%20findings;--", "/api/findings?limit=501", "/api/findings?limit=-1",
        "/api/findings?offset=99999999999999999999", "/api/findings?verdict=kernel%0a",
        "/api/findings?status=open&status=x",
        "/api/campaigns/99999999999999999999", "/api/campaigns/0", "/api/campaigns/-1", "/api/campaigns/1e3",
        "/api/corpus/%ff%fe", "/api/corpus/" + "a" * 3000, "/findings/%F0%9F%98%80", "/findings/%ed%a0%80",
        "/" + "x" * 60_000,
        "/api/campaigns/1/statistics?after=9223372036854775807", "/api/campaigns/1/statistics?after=nan",
        f"/api/findings/{KEY}/script?x=" + "&y=" * 1000, "/api/findings?" + "&".join(f"a{i}={i}" for i in range(2000)),
        "//evil.com/..", "/%2e%2e%2f%2e%2e%2fetc/passwd", "/login?next=//evil.com",
        "/api/corpus?text=" + quote("[" * 900),
    ]  # fmt: skip
    with Service(trial) as service:
        for path in paths:
            text = service.ask("GET", path)
            require("root:x:0" not in text, f"{path} holds another file")


@KIND.attack("each is refused by a status of 4xx")
def bodies_that_cannot_be(trial: Trial) -> None:
    """Sends bodies that are too large, nested, not UTF-8, with surrogates, NaN and keys twice, and other types."""
    bodies = [
        b"", b"null", b"[]", b"7", b'{"config":"' + b"a" * 66_000 + b'"}', b"[" * 60_000,
        b'{"config":' + b"9" * 60_000 + b"}",
        b'{"config":"\xff"}', b'{"config":"\\ud800"}', b'{"config":NaN}', b'{"config":"../../x"}',
        b'{"config":"small\\u0000"}',
        b'{"config":{"$ne":1}}', b'{"config":"nothing"}', b"a" * (5 << 20),
    ]  # fmt: skip
    paths = ("/api/campaigns", f"/api/findings/{KEY}/status", "/api/campaigns/1/stop", "/api/judge")
    requests = (("POST", path, JSON, body) for path in paths for body in bodies)
    asks(trial, requests, REFUSED)


@KIND.attack("each is answered, refused or closed; none is an error of the service")
def methods_and_headers(trial: Trial) -> None:
    """Sends made-up methods, hundreds of headers, long ones, two lengths, chunks and lengths at once, and ranges."""
    with Service(trial) as service:
        for method in ("TRACE", "CONNECT", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "PROPFIND", "x" * 500):
            service.ask(method, "/api/corpus")
        for headers in (
            {"Accept": "x" * 8000}, {"Cookie": "a=" + "b" * 8000}, {"Range": "bytes=0-,0-,0-"},
            {"Accept-Encoding": "x;q=nan"},
            {"Last-Event-ID": "9" * 400}, {"Authorization": "Bearer \xff"}, {"If-Modified-Since": "never"},
            {"Expect": "100-continue"},
        ):  # fmt: skip
            service.ask("GET", "/api/corpus", headers)
        head = f"POST /api/campaigns HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
        for more in (
            "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "Content-Length: -1\r\n\r\n",
            "Content-Length: 9e9\r\n\r\n",
            "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding: x\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx", "X: y\nZ: 1\r\n\r\n", " : x\r\n\r\n",
            "X\0: y\r\n\r\n",
            "".join(f"X-{i}: y\r\n" for i in range(2000)) + "\r\n", "X: " + "y" * (1 << 20) + "\r\n\r\n",
        ):  # fmt: skip
            check_status(service.raw((head + more).encode("latin-1")))


@KIND.attack("each is refused or closed; none is an error of the service")
def what_is_not_http(trial: Trial) -> None:
    """Sends other versions of HTTP, a TLS greeting, zeros, every byte, and nothing."""
    with Service(trial) as service:
        for data in (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", b"GET /\r\n",
            b"GET / HTTP/1.0\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), bytes(1 << 16), bytes(range(256)) * 256, b"",
            b"GET http://evil.com/ HTTP/1.1\r\nHost: evil.com\r\n\r\n", b"\r\n" * 10_000,
            b"GET / HTTP/1.1\r\n" + b"\0" * 100,
        ):  # fmt: skip
            check_status(service.raw(data))


def check_status(answer: bytes) -> None:
    """FellError for an error of the service; 501 and 505 say that something is not supported."""
    status = answer.split(b" ", 2)[1:2]
    require(not status or not status[0].startswith(b"5") or status[0] in (b"501", b"505"), f"answered {answer[:200]!a}")


def while_held(trial: Trial, count: int, data: Callable[[Service], bytes], busy: Sequence[int]) -> None:
    """Asks for a page while so many connections have sent some bytes and wait, and again when they are closed."""
    with Service(trial) as service, ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((HOST, service.port), timeout=40))
            with suppress(OSError):
                connection.sendall(data(service))
        time.sleep(1.0)
        for _ in range(3):
            service.ask("GET", "/api/corpus", allowed=(*OK, *busy))


@KIND.attack("a page is answered meanwhile")
def idle_connections(trial: Trial) -> None:
    """Opens 210 connections and sends nothing."""
    while_held(trial, 210, lambda service: b"", ())


@KIND.attack("a page is answered meanwhile")
def half_headers(trial: Trial) -> None:
    """Opens 210 connections and sends half a header on each."""
    while_held(trial, 210, lambda service: b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: ", ())


@KIND.attack("a page is answered meanwhile, or refused by status 503; and answered when they are closed")
def half_bodies(trial: Trial) -> None:
    """Opens 210 connections and sends half a body on each."""
    head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    while_held(trial, 210, lambda service: head + b"Content-Length: 100\r\n\r\na", (503,))


@KIND.attack("a page is answered meanwhile")
def streams_that_nobody_reads(trial: Trial) -> None:
    """Opens 100 streams of events, and reads none of them."""
    while_held(trial, 100, lambda service: b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n", ())


@KIND.attack("a page is answered after each burst")
def bursts_of_resets(trial: Trial) -> None:
    """Sends 300 requests for pages, whole and half, resets their connections, and asks for a page, five times."""
    with Service(trial) as service:
        for data in (b"GET /findings HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /fin") * 3:
            for _ in range(300):
                connection = socket.create_connection((HOST, service.port), timeout=40)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                with suppress(OSError):
                    connection.sendall(data)
                connection.close()
            service.ask("GET", "/api/corpus", allowed=OK)


@KIND.attack("a page is answered meanwhile, and the service holds less than 400 MiB")
def body_without_an_end(trial: Trial) -> None:
    """Sends a body of a gigabyte in chunks, to a page that anybody may ask for."""
    head = "POST /api/campaigns HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with Service(trial) as service, socket.create_connection((HOST, service.port), timeout=20) as connection:
        with suppress(OSError):
            connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
            for _ in range(1 << 14):
                connection.sendall(b"10000\r\n" + b"a" * 65_536 + b"\r\n")
        service.ask("GET", "/api/corpus", allowed=OK)
        held = resident(service.process.pid) >> 20
        require(held < 400, f"the service holds {held} MiB")


@KIND.attack("every page and document is answered, none holds an element that a text brings, and none blocks")
def records_that_are_hostile(trial: Trial) -> None:
    """Serves entries of HTML, templates, escape sequences and numbers, and a pipe, /dev/zero and garbage."""
    folder = trial.work / "corpus" / "gelu_bw"
    change = ("  backend: cpu", f'  backend: "{HTML}"\n  device: "{HTML}"\n  diagnosis: "{HTML}"')
    trial.write(
        "corpus/gelu_bw/<img src=x onerror=alert(3)>.yaml", BASE.replace(MESSAGE, f'message: "{HTML}"').replace(*change)
    )
    trial.write("corpus/gelu_bw/numbers.yaml", BASE.replace("disagreeing: 1", "disagreeing: 9223372036854775807"))
    trial.write("corpus/gelu_bw/garbage.yaml", bytes(range(256)))
    os.mkfifo(folder / "pipe.yaml")
    (folder / "zero.yaml").symlink_to("/dev/zero")
    trial.write("configs/<script>alert(1)<.yaml", GOOD)
    trial.write("configs/garbage.yaml", b"\xff")
    os.mkfifo(trial.work / "configs" / "pipe.yaml")
    trial.fuzz("store", "rebuild", "--store", "sqlite:///store.sqlite", "--corpus", "corpus")
    keys = [KEY, "numbers", "garbage", "pipe", "zero", quote("<img src=x onerror=alert(3)>")]
    with Service(trial) as service:
        for page in ("/", "/findings", "/corpus", "/help", "/metrics", "/api/configs", "/api/findings", "/api/corpus"):
            check_page(page, service.ask("GET", page, {"Accept": "text/html"}, allowed=OK))
        for key in keys:
            for page in (
                f"/findings/{key}",
                f"/api/findings/{key}",
                f"/api/corpus/{key}",
                f"/api/findings/{key}/script",
            ):
                check_page(page, service.ask("GET", page, {"Accept": "text/html"}))


def check_page(page: str, text: str) -> None:
    if text.lstrip().startswith("<"):
        require(not [one for one in MARKUP if one in text], f"{page} holds the text's elements")


@KIND.attack("no request is answered but the login page, the right token is, and 429 comes after 30 wrong ones")
def tokens_that_are_wrong(trial: Trial) -> None:
    """Asks a service with a token for pages with none, wrong, long, encoded, in the address, and 40 guesses."""
    with Service(trial, token=TOKEN) as service:
        wrong = [
            "",
            "Bearer",
            "Bearer ",
            f"bearer  {TOKEN}x",
            f"Basic {TOKEN}",
            f"Bearer {TOKEN[:-1]}",
            f"Bearer {TOKEN}\t.",
            "Bearer " + "x" * 7000,
        ]
        for value in wrong:
            service.ask("GET", "/api/corpus", {"Authorization": value}, allowed=(401, 403, 400, 303))
        for path in (
            f"/api/corpus?token={TOKEN}",
            f"/?token={TOKEN}",
            "/metrics",
            "/static/../api/corpus",
            "/openapi.json",
        ):
            service.ask("GET", path, allowed=(401, 403, 303, 404))
        for cookie in (f"token={TOKEN}x", "session=1", f"fuzz={quote(TOKEN)}=", "a" * 4000):
            service.ask("GET", "/api/corpus", {"Cookie": cookie}, allowed=(401, 403, 303, 429))
        service.ask("GET", "/api/corpus", service.authority(), allowed=OK)
        states = [
            service.send("GET", "/api/corpus", {"Authorization": f"Bearer guess-{number}"})[0] for number in range(40)
        ]
        require(states[-1] == 429, f"after 40 guesses: {states[-1]}")
        # The address that guesses waits for a minute, with the right token as well.
        time.sleep(61.0)


@KIND.attack("every marking is answered by 200 or 409, and the entry is whole")
def markings_by_many(trial: Trial) -> None:
    """Marks one finding by eight threads with hostile reasons, twenty times each, and reads it meanwhile."""
    trial.write(f"corpus/gelu_bw/{KEY}.yaml", BASE)
    trial.fuzz("store", "rebuild", "--store", "sqlite:///store.sqlite", "--corpus", "corpus")
    with Service(trial) as service:
        failures: list[str] = []

        def mark(number: int) -> None:
            body = json.dumps(
                {"status": ("open", "accepted")[number % 2], "why": f"{number}: \x1b[2J\n{HTML}"}
            ).encode()
            try:
                for _ in range(20):
                    service.ask("POST", f"/api/findings/{KEY}/status", JSON, body, allowed=(200, 400, 409, 422))
                    service.ask("GET", f"/api/findings/{KEY}", allowed=OK)
            except FellError as error:
                failures.append(str(error))

        threads = [threading.Thread(target=mark, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        require(not failures, "; ".join(failures)[:300])
    answer = trial.fuzz("show", f"corpus/gelu_bw/{KEY}.yaml")
    require(answer.code == 0, f"the entry cannot be read: {answer.err[-200:]!a}")


@KIND.attack("each has a judgement or is refused, and none is an error of the service")
def solutions_that_attack(trial: Trial) -> None:
    """Has solutions judged that end their process, that do not end, and that are no Python."""
    problem = (
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x): return x * 2\n"
        "def get_inputs(): return [torch.randn(8)]\ndef get_init_inputs(): return []\n"
    )
    solutions = ["import os; os._exit(0)", "\0(", "\x1b[2J", "import os, signal; os.kill(os.getppid(), signal.SIGSTOP)"]
    with Service(trial, "--judge", token=TOKEN) as service:
        head = {**JSON, **service.authority()}
        for solution in solutions:
            body = json.dumps({"problem": problem, "solution": solution, "seconds": 1}).encode()
            text = service.ask("POST", "/api/judge", head, body, allowed=(200, 202, 400, 422))
            if '"id"' in text:
                wait_for_judgement(service, json.loads(text)["id"], head)


def wait_for_judgement(service: Service, key: str, head: Mapping[str, str]) -> None:
    until = time.monotonic() + 90
    while json.loads(service.ask("GET", f"/api/judge/{key}", head, allowed=OK))["state"] != "judged":
        require(time.monotonic() < until, "no judgement within 90 s")
        time.sleep(0.5)
