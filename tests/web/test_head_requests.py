"""HEAD is answered as GET is, without the body."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from service_files import TOKEN, MakeClient


@pytest.mark.parametrize("path", ["/", "/help", "/metrics", "/login", "/static/live.js", "/api/findings", "/nowhere"])
def test_head_is_answered_as_get_without_the_body(client: TestClient, path: str) -> None:
    get, head = client.get(path), client.head(path)
    assert head.status_code == get.status_code and head.content == b"" and get.content
    assert set(head.headers) == set(get.headers) and head.headers["content-type"] == get.headers["content-type"]


def test_a_stream_has_no_head(client: TestClient) -> None:
    assert client.head("/api/events").status_code == 405


def test_head_needs_a_token_as_get_does(make_client: MakeClient) -> None:
    with make_client(token=TOKEN) as client:
        assert client.head("/api/findings").status_code == 401
        assert client.head("/api/findings", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
