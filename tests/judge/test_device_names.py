"""Solutions that decide by the name of a tensor's device, where no tensor lies on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.judge.device_names import compares_devices
from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.referee import judge
from fuzz.judge.result.judgement import MACHINE, UNSUPPORTED
from fuzz.judge.result.score import score
from tests.judge.problems import RELU, as_solution, write

KERNEL = "import triton\n\n\n@triton.jit\ndef kernel(x):\n    pass\n"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x.device.type == 'cuda'", True),
        ("x.device != torch.device('cuda', 0)", True),
        ("'cuda' in str(x.device)", True),
        ("str(x.device).startswith('cuda')", True),
        ("x.get_device() < 0", True),
        ("x.device == y.device", False),
        ("torch.empty(8, device='cuda').sum() > 0", False),
        ("torch.empty(8, device='cuda')", False),
        ("x.is_cuda", False),
        ("name == 'gelu'", False),
    ],
)
def test_what_compares_a_device_with_a_name(tmp_path: Path, expression: str, expected: bool) -> None:
    assert compares_devices(write(tmp_path, "solution", f"def forward(x, y):\n    return {expression}\n")) == expected


@pytest.mark.parametrize(
    "body", ["assert x.device.type == 'cuda'", "if x.device.type != 'cuda': raise RuntimeError('no GPU')"]
)
def test_what_refuses_the_processor_is_not_judged_on_it(tmp_path: Path, body: str) -> None:
    source = as_solution(RELU).replace("        return torch", f"        {body}\n        return torch")
    paths = write(tmp_path, "problem", RELU), write(tmp_path, "solution", source)
    found = judge(JudgeOptions(*paths, backend="cpu", seconds=0.0))
    assert (found.verdict, found.cause, score(found)) == (UNSUPPORTED, MACHINE, None), found.reason
    assert "refuses others" in found.reason


def test_what_launches_its_kernels_on_a_gpu_only_is_not_judged_on_a_processor(tmp_path: Path) -> None:
    body = "if x.device.type == 'cuda':\n            kernel[(1,)](x)\n        return torch"
    source = KERNEL + as_solution(RELU).replace("return torch", body)
    paths = write(tmp_path, "problem", RELU), write(tmp_path, "solution", source)
    found = judge(JudgeOptions(*paths, backend="cpu", seconds=0.0))
    assert (found.verdict, found.cause) == (UNSUPPORTED, MACHINE), found.reason
    assert "launches no kernel" in found.reason
