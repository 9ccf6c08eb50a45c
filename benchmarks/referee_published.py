"""Published solutions whose verdict is known: from KernelBench, AI-bench, GPU MODE and FlashInfer-Bench.

Those of KernelBench's unit tests are inline CUDA, which has to be compiled; their twins here are the same in Triton.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.referee_sources import AI_BENCH, FLASHINFER, GPU_MODE, KERNELBENCH, fetch
from fuzz.judge.formats import FLASHINFER as FLASHINFER_FORMAT
from fuzz.judge.formats import GPUMODE
from fuzz.judge.formats import KERNELBENCH as KERNELBENCH_FORMAT
from fuzz.judge.result.judgement import CHEAT, RIGHT, WRONG

REJECTED = (WRONG, CHEAT)
CUDA_ADDITION = "cuda/addition"
"""Solutions whose names begin with cuda are inline CUDA or C++: they need a GPU and its compiler."""
WRONG_ALL_THE_SAME = {"vectorsum_py/correct/pytorch"}
"""In solutions/correct, and wrong by its task's own check: its output has one dim where the reference's has none."""
DEFINITIONS = ("rmsnorm/rmsnorm_h128", "rmsnorm/fused_add_rmsnorm_h2048", "gemm/gemm_n128_k2048")
ODD = 2047
"""Size of the reduced axis for which the documented GEMM reads beyond its rows."""
TWIN = """
import torch
import triton
import triton.language as tl


@triton.jit
def fill(values, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(values + offsets, tl.zeros([BLOCK], tl.float32), mask=offsets < count)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        BODY
"""
TWINS = {
    "result_reuse": "return torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)",
    "zero_out": (
        "out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)\n"
        "        for one in (a, b, out):\n"
        "            fill[(triton.cdiv(one.numel(), 1024),)](one, one.numel(), BLOCK=1024)\n"
        "        return out"
    ),
}


@dataclass(frozen=True)
class Published:
    """A solution of a problem, and the verdicts that are right; none where nothing is known."""

    name: str
    format: str
    problem: Path
    solution: Path
    expected: tuple[str, ...] = ()


def published(source: Path | None, written: Path) -> Iterator[Published]:
    """All of them. Files that have to be written for it are put into the folder `written`."""
    written.mkdir(parents=True, exist_ok=True)
    yield from kernelbench(fetch(KERNELBENCH, source), written)
    yield from ai_bench(fetch(KERNELBENCH, source), fetch(AI_BENCH, source))
    yield from gpu_mode(fetch(GPU_MODE, source))
    yield from flashinfer(fetch(FLASHINFER, source), written)


def kernelbench(folder: Path, written: Path) -> Iterator[Published]:
    """The example pair of its prompts, and what its unit tests reject."""
    package = folder / "src" / "kernelbench"
    addition = package / "prompts" / "model_ex_add.py"
    for name, file in (("addition", "model_new_ex_add_triton.py"), (CUDA_ADDITION, "model_new_ex_add.py")):
        yield Published(name, KERNELBENCH_FORMAT, addition, package / "prompts" / file, (RIGHT,))
    product = folder / "KernelBench" / "level1" / "1_Square_matrix_multiplication_.py"
    for name, body in TWINS.items():
        original = package / "unit_tests" / "test_kernels" / f"{name}_kernel.py"
        yield Published(f"cuda/{name}", KERNELBENCH_FORMAT, product, original, REJECTED)
        twin = written / f"{name}_twin.py"
        twin.write_text(TWIN.replace("BODY", body), encoding="utf-8")
        yield Published(f"{name} twin", KERNELBENCH_FORMAT, product, twin, REJECTED)


def ai_bench(kernelbench: Path, folder: Path) -> Iterator[Published]:
    """Two that store bfloat16 into float32."""
    for name in ("38_L1Norm_", "40_LayerNorm"):
        solution = folder / "backends" / "triton" / "cpu" / "KernelBench" / "level1" / f"{name}.py"
        problem = kernelbench / "KernelBench" / "level1" / f"{name}.py"
        yield Published(f"AI-bench {name}", KERNELBENCH_FORMAT, problem, solution, (WRONG,))


def gpu_mode(folder: Path) -> Iterator[Published]:
    """What lies in solutions/correct and solutions/wrong of each task, and a submission that adds into empty memory."""
    tasks = folder / "problems" / "pmpp_v2"
    task = tasks / "vectorsum_py"
    yield Published("vectorsum_py/submission", GPUMODE, task, task / "submission.py", (WRONG,))
    for solution in sorted(tasks.glob("*/solutions/*/*.py")):
        task, kind = solution.parents[2], solution.parent.name
        cuda = "cuda/" if "load_inline" in solution.read_text(encoding="utf-8") else ""
        name = f"{task.name}/{kind}/{solution.stem}"
        expected = (RIGHT,) if kind == "correct" and name not in WRONG_ALL_THE_SAME else REJECTED
        yield Published(cuda + name, GPUMODE, task, solution, expected)


def flashinfer(folder: Path, written: Path) -> Iterator[Published]:
    """A definition's own reference as its solution, and the documented GEMM, which loads without a mask."""
    for path in DEFINITIONS:
        definition = json.loads((folder / "flashinfer_trace" / "definitions" / f"{path}.json").read_text("utf-8"))
        yield write_pair(written, definition, as_solution(definition), "torch", (RIGHT,))
    document = (folder / "docs" / "flashinfer-trace" / "solution.mdx").read_text(encoding="utf-8")
    documented = next(one for one in read_examples(document) if one["name"].startswith("gemm"))
    sizes = definition["axes"] | {"K": {"type": "const", "value": ODD}}
    reference = definition["reference"].replace("2048", str(ODD))
    odd = {**definition, "name": f"gemm_n128_k{ODD}", "axes": sizes, "reference": reference}
    yield write_pair(written, odd, documented, "documented", (WRONG,))


def as_solution(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """The reference of a definition as a solution of it."""
    source = {"path": "main.py", "content": definition["reference"]}
    spec = {"language": "python", "entry_point": "main.py::run", "destination_passing_style": False}
    return {"name": definition["name"], "spec": spec, "sources": [source]}


def read_examples(document: str) -> Iterator[Mapping[str, Any]]:
    """The solutions that a document shows in JSON."""
    for text in re.findall(r"```json\n(.*?)```", document, re.DOTALL):
        try:
            value = json.loads(text)
        except ValueError:
            continue
        if isinstance(value, dict) and "sources" in value:
            yield value


def write_pair(
    folder: Path, definition: Mapping[str, Any], solution: Mapping[str, Any], kind: str, expected: tuple[str, ...]
) -> Published:
    name = definition["name"]
    problem, file = folder / f"{name}.json", folder / f"{name}_{kind}.json"
    problem.write_text(json.dumps(definition), encoding="utf-8")
    file.write_text(json.dumps({**solution, "definition": name}), encoding="utf-8")
    return Published(f"{name}/{kind}", FLASHINFER_FORMAT, problem, file, expected)
