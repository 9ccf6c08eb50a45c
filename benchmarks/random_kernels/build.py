"""From kernels to functions that run them: Triton's front end and the backend's passes and translation for each, then
one C file and one call of the C compiler for all; with the knob `compiler` at `quick`, each in process."""

from __future__ import annotations

import ctypes
import inspect
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from triton._C.libtriton import ir
from triton.compiler import ASTSource

from fuzz.backends.cpu.codegen.prelude import PRELUDE
from fuzz.backends.cpu.compilers.compiler import build
from fuzz.backends.cpu.compilers.kernel_text import KernelText
from fuzz.backends.cpu.runtime.driver import TARGET
from fuzz.backends.cpu.runtime.kernel_function import load_kernel
from fuzz.backends.cpu.runtime.launcher import Launcher
from fuzz.backends.cpu.runtime.triton_backend import CPUCompiler, make_c, make_ttir
from fuzz.backends.triton_host.knobs import knobs

from .dtypes import DTYPES
from .evaluate import Memory
from .source import source
from .tree import Kernel

# Names of the C of one kernel that another one's has as well.
FUNCTIONS = (
    "program", "launch", "launch_begin", "launch_until", "launch_end", "launch_many", "release", "run_programs", "tags",
    "set_up", "tear_down",
)  # fmt: skip
OBJECTS = ("pointers", "Memory")


@dataclass
class Compiled:
    """A kernel on its way: its source, intermediate language and C, then what runs it; or why there is none."""

    kernel: Kernel
    source: str
    ttir: str = ""
    c: str = ""
    refused: Exception | None = None
    src: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)
    function: Any = None

    def run(self, memory: Memory) -> None:
        """Run all programs on these buffers."""
        launcher = Launcher(self.src, SimpleNamespace(**self.metadata))
        pointers = [torch.from_numpy(memory[buffer.name]) for buffer in self.kernel.buffers]
        scalars = [scalar.value for scalar in self.kernel.scalars]
        launcher.run(*self.kernel.grid, 1, 0, self.function, None, None, None, None, *pointers, *scalars)


def compiled(kernels: Sequence[Kernel]) -> list[Compiled]:
    """The kernels ready to run; those that are not say why."""
    batch = [Compiled(kernel, source(kernel)) for kernel in kernels]
    with tempfile.TemporaryDirectory(prefix="random-kernels-") as folder:
        for number, item in enumerate(batch):
            try:
                translate(item, function(item, Path(folder, f"kernel_{number}.py")))
            except Exception as refused:
                item.refused = refused
    load([item for item in batch if item.refused is None])
    return batch


def function(item: Compiled, path: Path) -> Any:
    """The kernel as Triton's decorator makes it, which reads its file."""
    path.write_text(item.source, encoding="utf-8")
    space: dict[str, Any] = {"__name__": path.stem}
    exec(compile(item.source, str(path), "exec"), space)
    return space[item.kernel.name]


def translate(item: Compiled, function: Any) -> None:
    """Triton's front end and passes, and the backend's C."""
    backend = CPUCompiler(TARGET)
    options = backend.parse_options({})
    item.src = ASTSource(function, signature(item.kernel), {}, {})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    given = {
        "target": TARGET, "options": options, "codegen_fns": backend.get_codegen_implementation(options),
        "module_map": backend.get_module_map(), "context": context,
    }  # fmt: skip
    # An older Triton does not ask for the target.
    wanted = inspect.signature(item.src.make_ir).parameters
    module = item.src.make_ir(*(given[name] for name in wanted))
    item.metadata = dict(vars(options)) | {"hash": item.kernel.name}
    item.ttir = str(make_ttir(module, item.metadata))
    item.c = make_c(item.ttir, item.metadata)


def signature(kernel: Kernel) -> dict[str, str]:
    pointers = {buffer.name: "*" + DTYPES[buffer.dtype].signature for buffer in kernel.buffers}
    return pointers | {scalar.name: DTYPES[scalar.dtype].signature for scalar in kernel.scalars}


def load(batch: Sequence[Compiled]) -> None:
    """Compile the C of all and load it; one by one where the C compiler fails."""
    try:
        link(batch)
    except RuntimeError as failure:
        if len(batch) == 1:
            batch[0].refused = failure
        else:
            for item in batch:
                load([item])


def link(batch: Sequence[Compiled]) -> None:
    if not batch:
        return
    if knobs.compiler == "quick":
        for item in batch:
            item.function = load_kernel(item.kernel.name, KernelText.of(item.c))
        return
    with tempfile.NamedTemporaryFile(prefix="random-kernels-", suffix=".so") as file:
        file.write(build(joined(batch), batch[0].kernel.name, max(len(item.c) for item in batch)))
        file.flush()
        library = ctypes.CDLL(file.name)
    for number, item in enumerate(batch):
        item.function = entry(library, number)


def entry(library: ctypes.CDLL, number: int) -> Any:
    """As the driver takes it from the file of one kernel."""
    launch: Any = getattr(library, f"launch_{number}")
    launch.restype, launch.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    launch.release = getattr(library, f"release_{number}")
    launch.release.restype, launch.release.argtypes = None, [ctypes.c_void_p]
    return launch


def joined(batch: Sequence[Compiled]) -> str:
    """One C file: the prelude once, then each kernel with names of its own."""
    parts = [PRELUDE]
    for number, item in enumerate(batch):
        assert item.c.startswith(PRELUDE)
        for name in FUNCTIONS:
            parts.append(f"#undef {name}\n#define {name}(...) {name}_{number}(__VA_ARGS__)")
        for name in OBJECTS:
            parts.append(f"#undef {name}\n#define {name} {name}_{number}")
        parts.append(item.c[len(PRELUDE) :])
    return "\n".join(parts)


def operations(ttir: str) -> list[str]:
    """Each operation of the intermediate language with the dtype of its result, or of what it stores."""
    found = []
    for name, rest in re.findall(r'(?m)^\s*(?:%[^=]+ = )?"?([a-z]+\.[a-z_]+)"?(.*?)(?: loc\(.*)?$', ttir):
        types = re.findall(r"(?:\b|x)([iuf]\d+|bf16|index)\b(?=[>\s,)]|$)", rest)
        found.append(f"{name} {types[-1]}" if types else name)
    return found
