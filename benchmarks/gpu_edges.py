"""The cpu backend beside a GPU, bit by bit, where C leaves a value undefined or types round: one line an operation.

    python3 benchmarks/gpu_edges.py record edges.pt          on a machine with a GPU (needs torch and triton alone)
    .venv/bin/python benchmarks/gpu_edges.py compare edges.pt

Each operation runs on special values and on random bits. `compare` prints how many results differ in bits (where both
are NaN they are counted apart), and the first that does. Exit code 1 where results differ that are not NaN.
"""

import sys
import tempfile
from collections.abc import Iterator

import torch
import triton

N, B = 1 << 13, 1024
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTS = [torch.int8, torch.int16, torch.int32, torch.int64]
EIGHT = [torch.float8_e4m3fn, torch.float8_e5m2]
VALUES = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, 3.0, -7.0, 127.5, 448.0, 464.0, 480.0, 57344.0, 61440.0, 65504.0, 1e30]
VALUES += [2.0**31, 2.0**63, -(2.0**31), -(2.0**63), 1e300, 1e-6, 1e-40, -1e-45]
VALUES += [float("inf"), float("-inf"), float("nan")]
WORD = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def operation(body: str) -> object:
    """A kernel that stores an expression in a and b."""
    source = f"""
import triton
import triton.language as tl
from triton.language.extra import libdevice
@triton.jit
def kernel(x, y, out, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(y + i)
    tl.store(out + i, {body})
"""
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write(source)
    space: dict[str, object] = {}
    exec(compile(source, file.name, "exec"), space)
    return space["kernel"]


def inputs(dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    size = torch.empty(0, dtype=dtype).element_size()
    bits = torch.randint(-(2**63), 2**63 - 1, (N,), generator=generator).to(WORD[size])
    if dtype.is_floating_point:
        special = torch.tensor(VALUES, dtype=torch.float64)
        special = special.to(dtype) if size > 1 else special.clamp(-448, 448).float().to(dtype)
        near = (torch.randn(N, generator=generator, dtype=torch.float64) * 8).float().to(dtype)
    else:
        info = torch.iinfo(dtype)
        special = torch.tensor([info.min, info.min + 1, -2, -1, 0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, info.max])
        special = special.to(dtype)
        near = torch.randint(-70, 70, (N,), generator=generator).to(dtype)
    chosen = special.view(WORD[size])[torch.randint(len(special), (N,), generator=generator)]
    which = torch.randint(3, (N,), generator=generator)
    return torch.where(which == 0, chosen, torch.where(which == 1, near.view(WORD[size]), bits)).view(dtype)


def run(kernel: object, dtype: torch.dtype, to: torch.dtype, device: str) -> torch.Tensor | str:
    """The results, or the name of what was raised."""
    x, y = inputs(dtype, 1), inputs(dtype, 2)
    out = torch.zeros(N, dtype=WORD[torch.empty(0, dtype=to).element_size()]).view(to).to(device)
    try:
        kernel[(N // B,)](x.to(device), y.to(device), out, B=B)  # type: ignore[index]
    except Exception as error:
        return type(error).__name__
    return out.cpu().view(WORD[out.element_size()])


def judged(name: str, dtype: torch.dtype, to: torch.dtype, gpu: torch.Tensor | str, ours: torch.Tensor | str) -> bool:
    """Prints a line; whether results differ."""
    head = f"{name:14} {str(dtype)[6:]:13} -> {str(to)[6:]:13}"
    if isinstance(gpu, str) or isinstance(ours, str):
        shown = [side if isinstance(side, str) else "runs" for side in (gpu, ours)]
        print(f"{head} gpu: {shown[0]}, cpu: {shown[1]}")
        return False
    differ, text = gpu != ours, ""
    if to.is_floating_point:
        nan = gpu.view(to).double().isnan() & ours.view(to).double().isnan()
        text = f", {int((differ & nan).sum())} in the bits of NaN"
        differ &= ~nan
    if differ.any():
        at = int(differ.nonzero()[0])
        seen = [inputs(dtype, 1), inputs(dtype, 2), gpu.view(to), ours.view(to)]
        first = [t.double()[at].item() if t.is_floating_point() else t[at].item() for t in seen]
        text += f"; of {first[0]!r}, {first[1]!r}: gpu {first[2]!r}, cpu {first[3]!r}"
    print(f"{head} {int(differ.sum())} of {N} differ{text}", flush=True)
    return bool(differ.any())


FLOAT_BODIES = {
    "+": "a + b", "-": "a - b", "*": "a * b", "/": "(a / b).to(a.dtype)", "%": "(a % b).to(a.dtype)",
    "maximum": "tl.maximum(a, b)", "minimum": "tl.minimum(a, b)", "abs": "tl.abs(a)", "neg": "-a",
    "maximum nan": "tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)",
    "clamp": "tl.clamp(a, b * 0 - 1, b * 0 + 1)", "where": "tl.where(a < b, a, b)", "fma": "tl.fma(a, b, a)",
}  # fmt: skip
INTEGER_BODIES = {
    "+": "{a} + {b}", "*": "{a} * {b}", "//": "{a} // {b}", "%": "{a} % {b}", "<<": "{a} << {b}", ">>": "{a} >> {b}",
    "abs": "tl.abs({a})", "max": "tl.maximum({a}, {b})",
}  # fmt: skip
WIDE_BODIES = {
    "div_rn": "tl.div_rn(a, b)", "sqrt_rn": "tl.sqrt_rn(a)", "floor": "tl.floor(a)", "ceil": "tl.ceil(a)",
    "rint": "libdevice.rint(a)", "round": "libdevice.round(a)", "fmod": "libdevice.fmod(a, b)",
    "rcp_rn": "libdevice.rcp_rn(a)", "saturatef": "libdevice.saturatef(a)", "float2int_rz": "libdevice.float2int_rz(a)",
}  # fmt: skip


def operations() -> Iterator[tuple[str, str, torch.dtype, torch.dtype]]:
    """Name, expression, dtype of the operands, dtype of the result."""
    for name, body in FLOAT_BODIES.items():
        yield from ((name, body, dtype, dtype) for dtype in FLOATS)
    for name, body in WIDE_BODIES.items():
        yield name, body, torch.float32, torch.int32 if "2int" in name else torch.float32
    for dtype in INTS:
        word, signed = f"tl.u{str(dtype)[6:]}", f"tl.{str(dtype)[6:]}"
        for name, body in INTEGER_BODIES.items():
            yield name, body.format(a="a", b="b"), dtype, dtype
            operands = {side: f"{side}.to({word}, bitcast=True)" for side in "ab"}
            yield f"u {name}", f"({body.format(**operands)}).to({signed}, bitcast=True)", dtype, dtype
        for source in FLOATS:
            yield "unsigned", f"a.to({word}).to({signed}, bitcast=True)", source, dtype
    cast = "a.to(out.dtype.element_ty)"
    kinds = [(source, to) for source in (*FLOATS, *EIGHT) for to in (*FLOATS, *EIGHT)]
    kinds += [pair for number in INTS for real in FLOATS for pair in ((number, real), (real, number))]
    yield from (("cast", cast, source, to) for source, to in kinds if source != to)
    down = cast.replace(")", ", fp_downcast_rounding='rtz')")
    yield from (("cast rtz", down, torch.float32, to) for to in (torch.float16, torch.bfloat16, torch.float8_e5m2))


def main(command: str, path: str) -> int:
    if command == "record":
        print(f"{torch.cuda.get_device_name()}, triton {triton.__version__}, torch {torch.__version__}")
        torch.save([run(operation(body), dtype, to, "cuda") for _, body, dtype, to in operations()], path)
        return 0
    from fuzz.backends import cpu

    recorded, found = torch.load(path), False
    with cpu.active():
        for (name, body, dtype, to), gpu in zip(operations(), recorded, strict=True):
            found |= judged(name, dtype, to, gpu, run(operation(body), dtype, to, "cpu"))
    return int(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
