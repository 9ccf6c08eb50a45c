"""What a campaign's file may say, and what is said about one that is wrong: one line that names the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz import cli
from fuzz.campaign.config import load_config, parse_config
from fuzz.campaign.jobs import create_jobs
from fuzz.errors import UsageError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_configuration_is_right_and_has_lanes(path: Path) -> None:
    config = load_config(path)
    assert config.name == path.stem
    assert len(create_jobs(config, 1)) >= config.workers


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("targets: [a]\nworkrs: 2", "workrs is not known; did you mean workers?"),
        ("targets: [a]\nbudget: {tme: 1h}", "budget.tme is not known; did you mean time?"),
        ("targets: [a]\nbudget: {xyz: 1h}", "budget.xyz is not known; known: time, cases, quiet"),
        ("workers: 2", "targets is missing"),
        ("targets: []", "targets list should have at least 1 item after validation, not 0, and is '[]'"),
        ("targets: [a]\nworkers: 0", "workers should be greater than 0, and is '0'"),
        ("targets: [a]\nworkers: '2'", "workers should be a valid integer, and is '2'"),
        (
            "targets: [a]\nbudget: {time: soon}",
            "budget.time should be a time such as 90s, 15m, 8h or 2d, and",
        ),
        ("targets: [a]\nbudget: {}", "budget should say time, cases or quiet, as nothing else ends a campaign"),
        ("targets: [a]\nbudget: {time: 0s}", "budget.time should be greater than 0, and is '0s'"),
        ("targets: [a]\nmemory: 4", "memory should be a size such as 900MiB or 4GiB, and is '4'"),
        ("targets: [a]\nname: ../up", "name string should match pattern"),
        ("targets: [a]\nworkers: 1\nworkers: 2", "key 'workers' is repeated"),
        ("targets: [a]\nbackends: [cpu, tpu]", "backends should be of auto, cpu, cuda, and is"),
        ("targets: [a]\nengines: [atheriss]", "engines should be of auto, random, evolve, atheris, and is"),
        ("targets: [a]\ncluster: rya", "cluster should be 'local' or 'ray', and is 'rya'"),
        ("targets: [a]\ngpus_per_worker: 0.5", "address and gpus_per_worker are for cluster: ray"),
        (
            "targets: [a]\ncluster: ray\ngpus_per_worker: 1.5",
            "gpus_per_worker should be a share of one GPU, or a whole number, and is '1.5'",
        ),
        ("targets: [a]\ncluster: ray\nbackends: [cuda]", "the backend cuda needs gpus_per_worker, such as 0.25"),
        ("targets: [a", "not readable as text of this format: while parsing a flow sequence"),
        ("- a", "a campaign is a mapping of keys such as targets, budget and workers"),
        (
            "targets: !!python/object/apply:os.system [ls]",
            "tag 'tag:yaml.org,2002:python/object/apply:os.system' is not allowed",
        ),
        ("targets: &all [a]\nplanted: *all", "anchors and aliases are not allowed"),
        ("<<: {targets: [a]}", "not readable as text of this format: could not determine a constructor"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(text: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_config(path)
    assert f"{path}: {line}" in str(caught.value) and "\n" not in str(caught.value)


def test_times_and_sizes_are_read() -> None:
    config = parse_config(
        {"targets": ["a"], "budget": {"time": "1.5h", "quiet": 90, "cases": 5}, "slice": "2m", "memory": "3GiB"}
    )
    assert (config.budget.time, config.budget.quiet, config.budget.cases) == (5400.0, 90.0, 5)
    assert (config.slice, config.memory) == (120.0, 3 << 30)


@pytest.mark.parametrize("content", [b"targets: [\xff]", None])
def test_a_file_that_cannot_be_read_ends_with_exit_code_2(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.yaml"
    if content:
        path.write_bytes(content)
    assert cli.exit_code(["campaign", str(path)]) == 2
    stderr = capsys.readouterr().err
    assert stderr.count("\n") == 1 and str(path) in stderr


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("targets: [no_such]", "targets: no target fits 'no_such'; fuzz list tells all"),
        ("targets: [gelu_bw]\nplanted: [nonsense]", "planted: 'nonsense' should be TARGET+BUG"),
        ("targets: [gelu_bw, '!*']", "targets: the patterns leave no target"),
        ("targets: [gelu_bw]\nstore: mysql://x/y", "mysql is not known"),
        ("targets: [gelu_bw]\ncorpus: /proc/nowhere", "corpus folder /proc/nowhere cannot be written"),
    ],
)
def test_a_campaign_that_cannot_run_ends_with_exit_code_2(
    keys: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(keys)
    assert cli.exit_code(["campaign", "c.yaml"]) == 2
    stderr = capsys.readouterr().err
    assert stderr.count("\n") == 1 and line in stderr


def test_a_command_is_words_or_a_line_for_the_shell() -> None:
    assert parse_config({"targets": ["a"], "notify": ["curl", "x y"]}).notify == ["curl", "x y"]
    assert parse_config({"targets": ["a"], "notify": "a | b"}).notify == ["/bin/sh", "-c", "a | b"]
