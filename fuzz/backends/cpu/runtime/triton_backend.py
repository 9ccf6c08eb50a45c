"""Implements the compiler as Triton sees it: options, passes, and the stages TTIR -> C."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass, fields
from functools import wraps
from types import ModuleType
from typing import Any

from triton import knobs
from triton._C.libtriton import ir, passes
from triton.backends.compiler import BaseBackend, GPUTarget
from triton.compiler.compiler import ASTSource, CompiledKernel

from fuzz.backends.cpu.compilers.compiler import source_hash
from fuzz.backends.cpu.compilers.kernel_text import digest_of
from fuzz.backends.cpu.errors import UnsupportedOperation
from fuzz.backends.cpu.instruments import PLAIN
from fuzz.backends.cpu.runtime.observation import current_instruments
from fuzz.backends.cpu.translate import translate
from fuzz.backends.triton_host.cheap_compilation import Unwritten, make_context
from fuzz.backends.triton_host.custom_floats import convert_fp8e4b15
from fuzz.backends.triton_host.identity import PretendedTarget

TARGET = GPUTarget("cpu", platform.machine(), 1)
make_first_ir = ASTSource.make_ir


@dataclass(frozen=True)
class CPUOptions:
    """Every keyword that a launch may carry. None of them changes a result here, but Triton's front end reads some."""

    backend_name: str = "cpu"
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    num_buffers_warp_spec: int = 0
    num_consumer_groups: int = 0
    reg_dec_producer: int = 0
    reg_inc_consumer: int = 0
    waves_per_eu: int = 0
    matrix_instr_nonkdim: int = 0
    kpack: int = 1
    cluster_dims: tuple[int, ...] = (1, 1, 1)
    maxnreg: int | None = None
    ptx_version: int | None = None
    ptx_options: str | None = None
    extern_libs: Any = None
    debug: bool = False
    arch: str | None = None
    ir_override: str | None = None
    supported_fp8_dtypes: tuple[str, ...] = ("fp8e4b15", "fp8e4b8", "fp8e4nv", "fp8e5", "fp8e5b16")
    deprecated_fp8_dot_operand_dtypes: tuple[str, ...] = ()
    default_dot_input_precision: str = "tf32"
    allowed_dot_input_precisions: tuple[str, ...] = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")
    max_num_imprecise_acc_default: int = 0
    enable_fp_fusion: bool = False
    enable_reflect_ftz: bool = False
    launch_cooperative_grid: bool = False
    launch_cluster: bool = False
    launch_pdl: bool = False
    sanitize_overflow: bool = False
    instrumentation_mode: str = ""
    fpsan_homomorphic_casts: bool = False
    fpsan_options: str = ""
    instruments: tuple[str, ...] = PLAIN

    def hash(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()


OPTIONS = frozenset(field.name for field in fields(CPUOptions))


class CPUCompiler(BaseBackend):  # type: ignore[misc]
    """Compiles for the processor this runs on."""

    binary_ext = "c"
    # Alignment has no meaning here: without it a kernel has fewer specialisations.
    supports_native_tensor_specialization = False

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        return bool(target.backend == "cpu") or isinstance(target, PretendedTarget)

    @staticmethod
    def parse_attr(desc: str) -> list[Any]:
        """Newer versions decide on integers without asking the backend; the same IR then comes from the disk cache."""
        return []

    @staticmethod
    def get_int_specialization(arg: Any, **kwargs: Any) -> str:
        return ""

    @staticmethod
    def get_tensor_specialization(arg: Any, **kwargs: Any) -> str:
        return ""

    def hash(self) -> str:
        # A kernel may ask for its target while it is compiled.
        return f"cpu-{source_hash()}-{self.target.backend}-{self.target.arch}"

    def parse_options(self, options: dict[str, Any]) -> CPUOptions:
        arguments: dict[str, Any] = {"instruments": current_instruments()}
        for name, value in options.items():
            if name in OPTIONS and value is not None:
                arguments[name] = tuple(value) if isinstance(value, list) else value
        # As for CUDA, debug mode also asserts that integers do not overflow.
        arguments.setdefault("sanitize_overflow", bool(arguments.get("debug")))
        return CPUOptions(**arguments)

    def pack_metadata(self, metadata: Any) -> Any:
        return metadata

    def get_codegen_implementation(self, options: CPUOptions) -> dict[str, Any]:
        return {"min_dot_size": lambda left, right: (1, 1, 1), "convert_custom_types": convert_fp8e4b15}

    def get_module_map(self) -> dict[str, ModuleType]:
        from triton.language.extra.cuda import libdevice

        return {"triton.language.extra.libdevice": libdevice}

    def load_dialects(self, context: Any) -> None:
        """TTIR needs no dialect of its own."""

    def add_stages(self, stages: dict[str, Any], options: CPUOptions, language: Any = None) -> None:
        if getattr(language, "name", "TRITON") != "TRITON":
            raise UnsupportedOperation(f"the language {language.name.capitalize()}")
        stages["ttir"] = make_ttir
        stages["c"] = make_c


@wraps(make_first_ir)
def make_ir(source: ASTSource, *given: Any) -> Any:
    """The IR of a kernel before the first pass. Triton writes it, but where it is for the CPU."""
    module = make_first_ir(source, *given)
    return Unwritten(module) if any(isinstance(one, CPUOptions) for one in given) else module


def make_ttir(first: Any, metadata: dict[str, Any]) -> Any:
    """TTIR after the passes that every backend runs on it: its text, which Triton writes and C is made of.

    It is the module where Triton is to take the places of operations from it.
    """
    module = first.module if isinstance(first, Unwritten) else first
    manager = ir.pass_manager(module.context)
    manager.enable_debug()
    passes.common.add_inliner(manager)
    if hasattr(passes.ttir, "add_rewrite_tensor_pointer"):
        passes.ttir.add_rewrite_tensor_pointer(manager)
    passes.ttir.add_rewrite_tensor_descriptor_to_pointer(manager)
    passes.common.add_canonicalizer(manager)
    passes.ttir.add_combine(manager)
    passes.ttir.add_reorder_broadcast(manager)
    passes.common.add_cse(manager)
    passes.ttir.add_triton_licm(manager)
    passes.common.add_symbol_dce(manager)
    manager.run(module, "make_ttir")
    return module if knobs.compilation.use_ir_loc else str(module)


def make_c(ttir: Any, metadata: dict[str, Any]) -> str:
    """The C text of TTIR, a text or a module."""
    program = translate(str(ttir), metadata["instruments"])
    # Also where Triton has another target: a kernel from the cache is taken for one of its target's backend.
    metadata["target"] = TARGET
    metadata["name"] = program.name
    metadata["c_digest"], metadata["c_characters"] = digest_of(program.c), len(program.c)
    metadata["shared"] = 0
    metadata["warp_size"] = 1
    metadata["sites"] = [site.as_json() for site in program.sites]
    metadata["parameters"] = program.parameters
    metadata["counters"] = [counter.as_json() for counter in program.counters]
    metadata["compared_numbers"] = program.compared_numbers
    metadata["offset_locations"] = [(location.file, location.line) for location in program.offset_locations]
    return program.c


def make_source(kernel: CompiledKernel) -> str:
    """The text of a kernel's IR before the first pass, made again as the knobs are now.

    The backend has to be active: a kernel may ask for its target.
    """
    compiler, metadata = CPUCompiler(TARGET), kernel.metadata
    options = CPUOptions(**{name: getattr(metadata, name) for name in OPTIONS})
    context = make_context()
    ir.load_dialects(context)
    functions, modules = compiler.get_codegen_implementation(options), compiler.get_module_map()
    return str(make_first_ir(kernel.src, TARGET, options, functions, modules, context))
