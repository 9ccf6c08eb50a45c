"""Which operations are known, and which of their keywords and attributes have a meaning here.

Anything not in this table is refused by name: a keyword that a new Triton adds may change what an operation means.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuzz.backends.cpu.errors import UnsupportedOperation
from fuzz.backends.cpu.frontend.ir import Attribute, Op


@dataclass(frozen=True, slots=True)
class Signature:
    """Operand counts, the bare words that may appear, and for every attribute its values (None: any)."""

    operands: tuple[int, ...]
    words: frozenset[str] = frozenset()
    attributes: dict[str, tuple[Attribute, ...] | None] | None = None


def signature(*operands: int, words: str = "", **attributes: tuple[Attribute, ...] | None) -> Signature:
    return Signature(operands, frozenset(words.split()), attributes)


INTEGER_PREDICATES = "eq ne slt sle sgt sge ult ule ugt uge"
FLOAT_PREDICATES = "oeq one olt ole ogt oge ord ueq une ult ule ugt uge uno"
MEMORY_ORDER = "relaxed acquire release acq_rel cta gpu sys"
ATOMICS = "and or xor add fadd max min umax umin exch"
CACHE: dict[str, tuple[Attribute, ...] | None] = {
    "cacheModifier": None,
    "evictionPolicy": None,
    "isVolatile": None,
}

SCALED_FORMATS: tuple[Attribute, ...] = ("e2m1", "e4m3", "e5m2", "bf16", "fp16")

BINARY_INTEGER = "addi subi muli divsi divui remsi remui andi ori xori shli shrsi shrui maxsi maxui minsi minui"
BINARY_FLOAT = "addf subf mulf divf remf maxnumf minnumf maximumf minimumf"
CASTS = "extf truncf extsi extui trunci sitofp uitofp fptosi fptoui bitcast index_cast"
UNARY_MATH = "absf absi exp exp2 expm1 log log2 log10 log1p sin cos tan sqrt rsqrt erf tanh floor ceil round roundeven"
UNARY_MATH += " trunc cbrt asin acos atan sinh cosh asinh acosh atanh exp10 ctpop ctlz"

SIGNATURES: dict[str, Signature] = {
    "arith.constant": signature(0, value=None),
    "arith.cmpi": signature(2, words=INTEGER_PREDICATES),
    "arith.cmpf": signature(2, words=FLOAT_PREDICATES, fastmath=None),
    "arith.select": signature(3),
    "arith.negf": signature(1, fastmath=None),
    **{f"arith.{name}": signature(2, overflow=None) for name in BINARY_INTEGER.split()},
    **{f"arith.{name}": signature(2, fastmath=None) for name in BINARY_FLOAT.split()},
    **{f"arith.{name}": signature(1) for name in CASTS.split()},
    "arith.extui": signature(1, nneg=None, words="nneg"),
    "arith.uitofp": signature(1, nneg=None, words="nneg"),
    "arith.trunci": signature(1, overflow=None),
    "arith.extf": signature(1, fastmath=None),
    "arith.truncf": signature(1, fastmath=None),
    **{f"math.{name}": signature(1, fastmath=None) for name in UNARY_MATH.split()},
    **{f"math.{name}": signature(2, fastmath=None) for name in ("powf", "atan2", "copysign")},
    "math.fma": signature(3, fastmath=None),
    "tt.get_program_id": signature(0, words="x y z"),
    "tt.get_num_programs": signature(0, words="x y z"),
    "tt.make_range": signature(0, start=None, end=None),
    "tt.splat": signature(1),
    "tt.unsplat": signature(1),
    "tt.broadcast": signature(1),
    "tt.expand_dims": signature(1, axis=None),
    "tt.reshape": signature(1, words="allow_reorder efficient_layout", allow_reorder=None, efficient_layout=None),
    "tt.trans": signature(1, order=None),
    "tt.join": signature(2),
    "tt.split": signature(1),
    "tt.cat": signature(2),
    "tt.bitcast": signature(1),
    "tt.fp_to_fp": signature(1, rounding=("rtne", "rtz")),
    "tt.clampf": signature(3, propagateNan=("none", "all")),
    "tt.precise_sqrt": signature(1),
    "tt.precise_divf": signature(2),
    "tt.mulhiui": signature(2),
    "tt.extern_elementwise": signature(1, 2, 3, libname=None, libpath=None, pure=None, symbol=None),
    "tt.addptr": signature(2),
    "tt.load": replace(signature(1, 2, 3), attributes=CACHE),
    "tt.store": replace(signature(2, 3), attributes=CACHE),
    "tt.atomic_rmw": signature(2, 3, words=f"{ATOMICS} {MEMORY_ORDER}"),
    "tt.atomic_cas": signature(3, words=MEMORY_ORDER),
    "tt.reduce": signature(*range(1, 9), axis=None, reduction_ordering=("unordered",)),
    "tt.scan": signature(*range(1, 9), axis=None, reverse=(True, False)),
    "tt.dot": signature(3, inputPrecision=("ieee", "tf32", "tf32x3"), maxNumImpreciseAcc=None),
    "tt.dot_scaled": signature(
        3,
        4,
        5,
        lhs=SCALED_FORMATS,
        rhs=SCALED_FORMATS,
        fastMath=(True, False),
        lhs_k_pack=(True, False),
        rhs_k_pack=(True, False),
        lhs_scaled=None,
        rhs_scaled=None,
    ),
    "tt.ptr_to_int": signature(1),
    "tt.int_to_ptr": signature(1),
    "tt.call": signature(*range(33), callee=None),
    "tt.map_elementwise": signature(*range(1, 33), pack=None),
    "tt.map_elementwise.return": signature(*range(1, 33)),
    "tt.elementwise_inline_asm": signature(*range(17), constraints=None, packed_element=None, pure=None),
    "tt.gather": signature(2, axis=None, efficient_layout=None, words="efficient_layout"),
    "tt.histogram": signature(1, 2),
    "tt.assert": signature(1, words="", message=None),
    "tt.return": signature(*range(33)),
    "tt.reduce.return": signature(*range(1, 9)),
    "tt.scan.return": signature(*range(1, 9)),
    "ttg.barrier": signature(0, words="all local global_read global_write none"),
    "gpu.barrier": signature(0),
    "llvm.intr.assume": signature(1),
    "ub.poison": signature(0),
}
FREE_TEXT = {"tt.assert", "tt.print", "tt.elementwise_inline_asm"}
STRUCTURED = {"scf.for", "scf.if", "scf.while", "scf.condition", "scf.yield", "cf.br", "cf.cond_br", "tt.print"}
# Hints to the optimiser of a GPU's compiler; they change no value.
IGNORED = {"tt.divisibility", "tt.contiguity", "tt.constancy", "tt.num_stages", "tt.warp_specialize", "noinline"}
LOOP_HINTS = ("tt.", "loop_annotation", "llvm.")


def check(op: Op) -> None:
    """Refuse what the table does not know."""
    if op.name in STRUCTURED:
        check_structured(op)
        return
    known = SIGNATURES.get(op.name)
    if known is None:
        raise UnsupportedOperation(op.name)
    if len(op.operands) not in known.operands:
        raise UnsupportedOperation(f"{op.name} with {len(op.operands)} operands")
    if op.name not in FREE_TEXT:
        for word in op.words:
            if word not in known.words:
                raise UnsupportedOperation(f"{op.name} {word}")
    check_attributes(op, known.attributes or {})


def check_attributes(op: Op, known: dict[str, tuple[Attribute, ...] | None]) -> None:
    for name, value in op.attributes.items():
        if name in IGNORED:
            continue
        if name not in known:
            raise UnsupportedOperation(f"{op.name} {{{name} = {value}}}")
        allowed = known[name]
        if allowed is not None and value not in allowed:
            raise UnsupportedOperation(f"{op.name} {name} = {value}")


def check_structured(op: Op) -> None:
    if op.name == "tt.print":
        return
    for name in op.attributes:
        if name != "unsigned" and not name.startswith(LOOP_HINTS):
            raise UnsupportedOperation(f"{op.name} {{{name}}}")
