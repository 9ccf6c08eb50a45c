"""Launch options are drawn for launchers that have them, from a stream of their own, applied, shrunk and saved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from programs import run_programs

from fuzz import corpus
from fuzz.backends import backend
from fuzz.backends.execute import run
from fuzz.corpus import codec
from fuzz.errors import CorpusError
from fuzz.model.case import Argument, Call, Case, LaunchOptions, sort_key
from fuzz.model.edit import with_launch
from fuzz.model.entry import Entry, digest
from fuzz.model.outcome import Returned
from fuzz.model.recipes import recipe
from fuzz.report.entry_text import case_lines
from fuzz.report.reproducer.script import script
from fuzz.run.fuzzer import Fuzzer
from fuzz.run.options import RunOptions
from fuzz.run.replay import reproduces
from fuzz.run.watcher import Watcher
from fuzz.search.engines import RandomEngine
from fuzz.search.engines.dictionary import Dictionary
from fuzz.search.engines.evolve import EvolveEngine
from fuzz.search.engines.launch_options import LaunchSpace, launch_space
from fuzz.shrink.passes.launch import plain_launch
from fuzz.target.loader import load
from fuzz.target.spec import Target

TARGET = '''"""Doubles; wrong in the second configuration."""
import torch
import triton
import triton.language as tl

from fuzz import size, target, tensor

N = size("N", 1, 64)


@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (16, 32, 64)], key=["n"])
@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    factor = 3 if BLOCK == 32 else 2
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


@target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(out=2 * x))
def doubled(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    double_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return dict(out=out)
'''


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "fuzz_doubled.py"
    file.write_text(TARGET, encoding="utf-8")
    return file


def one_call(launch: LaunchOptions | None = None) -> Case:
    return Case("doubled", (Call({"N": 3}, {"x": Argument(("N",), "float32", recipe("normal", 1))}, launch=launch),))


def test_a_bug_of_one_configuration_is_found_shrunk_to_it_and_replayed(path: Path, tmp_path: Path) -> None:
    target = load(str(path))
    assert launch_space(target.launcher) == LaunchSpace(3, False)
    options = RunOptions(str(path), None, "cpu", cases=40)
    fuzzer = Fuzzer(options, target, "cpu", tmp_path / "corpus", Watcher(), {}, with_cross_checks=False)
    bugs = fuzzer.run().bugs
    assert [bug.finding.oracle for bug in bugs] == ["accuracy"]
    assert bugs[0].case.last.launch == LaunchOptions(config=1) and bugs[0].case.last.dims == {"N": 1}
    entry = corpus.read(Path(bugs[0].path))
    assert entry.case == bugs[0].case and reproduces(entry, str(path), target, "cpu")
    good = replace(entry, case=with_launch(entry.case, LaunchOptions(config=2)), grade=None)
    assert not reproduces(good, str(path), target, "cpu")
    ended = run_programs(tmp_path, (script(one, target, None, "again") for one in (entry, good)))
    assert [one.code for one in ended] == [1, 0]


def test_launchers_without_configurations_or_questions_draw_nothing() -> None:
    target = load("gelu_bw")
    space = launch_space(target.launcher)
    assert not space and space.draw(one_call(), "key") == one_call()


def asking(x: object) -> int:
    import torch

    return torch.cuda.get_device_properties(0).multi_processor_count


def test_a_launcher_that_asks_for_its_device_gets_drawn_answers() -> None:
    space = launch_space(asking)
    assert space == LaunchSpace(0, True)
    drawn = [space.draw(one_call(), str(number)).last.launch for number in range(200)]
    assert drawn == [space.draw(one_call(), str(number)).last.launch for number in range(200)]
    given = [launch for launch in drawn if launch]
    assert 20 < len(given) < 80 and all(launch.config is None for launch in given)
    assert {launch.multiprocessor_count for launch in given} == {None, 1, 16, 108, 132}


ASKING = '''"""Returns how many multiprocessors the device has."""
import torch

from fuzz import size, target, tensor

N = size("N", 1, 4)


@target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(out=x))
def counted(x):
    return dict(out=torch.full_like(x, torch.cuda.get_device_properties(0).multi_processor_count))
'''


def test_a_launcher_is_told_of_the_device_of_its_call(tmp_path: Path) -> None:
    file = tmp_path / "fuzz_counted.py"
    file.write_text(ASKING, encoding="utf-8")
    target = load(str(file))
    calls = [*one_call(LaunchOptions(multiprocessor_count=108)).calls, *one_call().calls]
    outcome = run(target, target.launcher, calls, backend("cpu"))
    assert isinstance(outcome, Returned)
    assert [call.outputs["out"].tolist() for call in outcome.calls] == [[108.0] * 3, [4.0] * 3]


@pytest.fixture
def layer_norm() -> Target:
    return load("layernorm_bw")


def test_all_other_draws_stay_as_they_are(layer_norm: Target) -> None:
    space = LaunchSpace(5, True)
    without, drawn = RandomEngine(layer_norm, 3), RandomEngine(layer_norm, 3, launches=space)
    pairs = [(without.propose(), drawn.propose()) for _ in range(60)]
    assert all(with_launch(some.plan, None) == plain.plan for plain, some in pairs)
    assert any(some.plan.last.launch for _, some in pairs)
    evolving = EvolveEngine(layer_norm, 3, Dictionary())
    other = EvolveEngine(layer_norm, 3, Dictionary(), launches=space)
    assert [with_launch(other.propose().plan, None) for _ in range(60)] == [evolving.propose().plan for _ in range(60)]


def test_launch_options_stand_in_the_text_the_digest_and_the_order_only_where_there_are_any() -> None:
    plain, launched = one_call(), one_call(LaunchOptions(2, max_shared_mem=49152))
    assert digest(plain) != digest(launched) and sort_key(plain, {}) < sort_key(launched, {})
    assert "launch" not in codec.dumps(Entry(plain))
    text = codec.dumps(Entry(launched))
    assert "    launch: {config: 2, max_shared_mem: 49152}\n" in text
    assert codec.loads(text.encode()).case == launched and launched.replica(3).last.launch == launched.last.launch
    assert "  launched with config=2, max_shared_mem=49152" in case_lines(launched)


@pytest.mark.parametrize("launch", ["{}", "{config: -1}", "{config: 2147483648}", "{threads: 2}", "[config]"])
def test_launch_options_that_there_are_not_are_refused(launch: str) -> None:
    text = codec.dumps(Entry(one_call(LaunchOptions(2)))).replace("{config: 2}", launch)
    with pytest.raises(CorpusError):
        codec.loads(text.encode())


def test_the_pass_drops_launch_options_and_takes_earlier_configurations(layer_norm: Target) -> None:
    case = one_call(LaunchOptions(2, 108))
    candidates = [smaller.last.launch for smaller in plain_launch(case, layer_norm)]
    assert candidates == [
        None, LaunchOptions(None, 108), LaunchOptions(2), LaunchOptions(0, 108), LaunchOptions(1, 108),
    ]  # fmt: skip
    assert list(plain_launch(one_call(), layer_norm)) == []
