"""Releases: in the order of their versions, from a folder of wheels as well."""

from __future__ import annotations

from pathlib import Path

from benchmarks.releases import import_path, published_versions


def test_versions_of_a_folder_are_in_order(tmp_path: Path) -> None:
    for version in ("0.5.10", "0.5.9", "0.6.0"):
        (tmp_path / f"tiny_lib-{version}-py3-none-any.whl").touch()
    (tmp_path / "other-1.0-py3-none-any.whl").touch()
    assert published_versions("tiny-lib", tmp_path) == ["0.5.9", "0.5.10", "0.6.0"]


def test_a_release_comes_before_what_is_installed(tmp_path: Path) -> None:
    assert import_path(tmp_path)["PYTHONPATH"].split(":")[0] == str(tmp_path)
