"""The cpu backend's casts of all 2^32 float32 values, bit by bit against torch; NaN only as NaN.

    .venv/bin/python benchmarks/exhaustive_casts.py [bfloat16 float16 float8_e4m3fn float8_e5m2] [--part K/N]

About 5 minutes a dtype on one core, in chunks of 2^24 values; `--part 1/4` does every fourth. Torch does not
saturate to 8 bits as a GPU does: there, larger values are compared with the largest finite one. Exit code 1 if any
differs.
"""

import argparse
import sys
import time

import torch
import triton
import triton.language as tl

from fuzz.backends import cpu

CHUNK, BLOCK = 1 << 24, 4096
WORD = {1: torch.uint8, 2: torch.int16}


@triton.jit
def cast(x, out, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty))


def expected(x: torch.Tensor, to: torch.dtype) -> torch.Tensor:
    """Torch's rounding; for 8 bits of the value clamped to what is finite, but NaN stays NaN."""
    if to.itemsize > 1:
        return x.to(to)
    largest = torch.finfo(to).max
    return x.clamp(-largest, largest).to(to)


def differing(got: torch.Tensor, want: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Where bits differ: a NaN in x has to be a NaN, anything else has to have the bits wanted."""
    word = WORD[got.element_size()]
    nan = x.isnan()
    wrong_nan = nan & ~(got.float().isnan() if got.element_size() == 1 else got.isnan())
    return wrong_nan | (~nan & (got.view(word) != want.view(word)))


def check(to: torch.dtype, part: int, parts: int) -> int:
    start, count = time.monotonic(), 0
    chunks = range((1 << 32) // CHUNK)[part - 1 :: parts]
    for chunk in chunks:
        words = torch.arange(chunk * CHUNK, (chunk + 1) * CHUNK, dtype=torch.int64)
        x = torch.where(words < 1 << 31, words, words - (1 << 32)).to(torch.int32).view(torch.float32)
        out = torch.empty(CHUNK, dtype=WORD[to.itemsize]).view(to)
        cast[(CHUNK // BLOCK,)](x, out, B=BLOCK)
        differ = differing(out, expected(x, to), x)
        if differ.any():
            first = int(differ.nonzero()[0])
            print(f"{x[first].item()!r} ({int(words[first]):#x}): {out[first].float()}", file=sys.stderr)
            count += int(differ.sum())
    print(f"{to}: {count} of {len(chunks) * CHUNK} differ, {time.monotonic() - start:.0f} s", flush=True)
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dtypes", nargs="*", default=["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
    parser.add_argument("--part", default="1/1")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    with cpu.active():
        return int(sum(check(getattr(torch, name), part, parts) for name in given.dtypes) > 0)


if __name__ == "__main__":
    sys.exit(main())
