"""Texts for the reader of entries, each read by a process of its own."""

from __future__ import annotations

import resource
import sys
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "reliability"))

from hostile_entries import BASE, with_digest  # noqa: E402

from benchmarks.attacks.attack import Kind  # noqa: E402
from benchmarks.attacks.trial import Trial, require  # noqa: E402

KIND = Kind("texts for the reader of entries")
SECONDS = 60.0
"""Seconds for the start of a Python and a text that takes a quarter of a second."""
MEMORY = 4 << 30
READ = (
    "import sys; from fuzz.corpus import codec; from fuzz.errors import CorpusError\n"
    "try: codec.loads(open(sys.argv[1], 'rb').read())\n"
    "except CorpusError as error: assert str(error); sys.exit(7)\n"
)
WHY, SHAPE, RATIO, DIMS, BITS = 'why: ""', "shape: [N]", "1074823.4", "{N: 1}", 'bits: "0xc0800000"'
RECIPE = 'recipe: "normal/1 seed=1"\n        overrides: '
HUGE = "4611686018427387904"
TEXTS = {
    "anchor": (WHY, 'why: &a "x"'),
    "alias": (WHY, "why: *a"),
    "tag_of_python": (WHY, 'why: !!python/object/apply:os.system ["touch pwned"]'),
    "tag_of_text": (WHY, "why: !!str x"),
    "tag_directive": ("format: ", "%TAG ! tag:x,2000:\n---\nformat: "),
    "two_documents": (WHY, 'why: ""\n---\nformat: fuzz-case/1'),
    "brackets": (WHY, "why: " + "[" * 100_000),
    "braces": (WHY, "why: " + "{a: " * 50_000),
    "nested_blocks": (WHY, "why:\n" + "".join("  " * i + "- \n" for i in range(1, 700))),
    "dashes": (WHY, "why:\n  " + "- " * 200_000),
    "questions": (WHY, "why:\n  " + "? " * 200_000),
    "long_comment": (WHY, WHY + "  #" + "#" * 1_000_000),
    "long_list_with_a_late_error": ("seen:", "x: [" + "a," * 480_000 + "}\nseen:"),
    "colons": (WHY, "why: " + ":" * 1_000_000),
    "escapes_of_letters": (WHY, 'why: "' + "\\x41" * 240_000 + '"'),
    "many_keys": ("seen:\n", "seen:\n" + "".join(f"  k{i}: x\n" for i in range(85_000))),
    "many_calls": ("finding:\n", "  - {dims: {}, arguments: {}}\n" * 30_000 + "finding:\n"),
    "far_override": (BITS, f'{RECIPE}"999999999999: 3f800000"'),
    "wide_override": (BITS, f'{RECIPE}"0: ffffffffffffffff"'),
    "wide_word": ("0xc0800000", "0xffffffffffffffff"),
    "too_many_words": ("0xc0800000", "0xc0800000 0xc0800000"),
    "huge_dim": (DIMS, f"{{N: {HUGE}}}"),
    "product_of_dims": (SHAPE, 'shape: ["' + "*".join(["N"] * 90) + '"]'),
    "thousand_dims": (SHAPE, "shape: [" + ",".join(["N"] * 1000) + "]"),
    "power": (SHAPE, 'shape: ["9**9**9"]'),
    "call_in_a_shape": (SHAPE, "shape: [\"__import__('os').system('touch pwned')\"]"),
    "brackets_in_a_shape": (SHAPE, 'shape: ["' + "(" * 95 + "N" + ")" * 95 + '"]'),
    "division_by_zero": (SHAPE, 'shape: ["N//0"]'),
    "long_number_in_a_shape": (SHAPE, 'shape: ["' + "9" * 199 + '"]'),
    "function_in_a_shape": (SHAPE, 'shape: ["(lambda: 1)()"]'),
    "infinite_ratio": (RATIO, "1e9999"),
    "ratio_that_is_nan": (RATIO, "nan"),
    "ratio_of_300_digits": (RATIO, "9" * 300),
    "option_of_300_digits": (DIMS, "{N: 1}\n    options: {a: " + "9" * 300 + "}"),
    "half_a_surrogate_pair": (WHY, 'why: "\\ud800"'),
    "nul": (WHY, 'why: "\\0"'),
    "control_character": (WHY, 'why: "\x1b[2J"'),
    "path_for_a_target": ("target: gelu_bw", "target: ../../x"),
    "function_for_a_target": ("target: gelu_bw", "target: __import__"),
    "wide_letters_for_a_target": ("target: gelu_bw", "target: \uff47elu_bw"),
    "path_for_a_planted_bug": ("planted: erf_saturates", "planted: ../../x"),
    "call_of_20_digits": ("call: 0", "call: 9999999999999999999"),
    "call_of_5000_digits": ("call: 0", "call: " + "9" * 5000),
    "rate_of_text": ("rate: 10/10", "rate: x"),
    "list_for_a_text": ("seen:", "seen:\n  diagnosis: [a]"),
    "other_end_of_line": ("\nplanted", "\x85planted"),
    "repeated_key": ("status: open", "status: open\nstatus: fixed"),
    "another_digest": ("b5936751bfb0419c", "0000000000000000"),
    "newer_format": ("fuzz-case/1", "fuzz-case/99999999999999999999"),
}  # fmt: skip
"""Name -> (text of a good entry, what stands in its place)."""
ALLOWED = {
    "right_to_left": BASE.replace(WHY, 'why: "\\u202e\\u2066evil"'),
    "payload_of_nan": with_digest(BASE.replace("0xc0800000", "0x7fa00001")),
    "byte_order_mark": "\ufeff" + BASE,
    "returns": BASE.replace("\n", "\r\n"),
    "large_recipe": BASE.replace(DIMS, "{N: 33554432}").replace('bits: "0x3f800000"', 'recipe: "normal/1 seed=1"'),
    "expanded": with_digest(
        BASE.replace(DIMS, f"{{N: {HUGE}}}").replace("dtype: float32", "dtype: float32\n        layout: {expand: [0]}")
    ),
    "utf_16": BASE.encode("utf-16"),
    "every_byte": bytes(range(256)) * 16,
}
"""Texts that a reader may take, or refuse."""


CLEANED = {
    "long_comment", "escapes_of_letters", "infinite_ratio", "ratio_that_is_nan", "ratio_of_300_digits",
    "half_a_surrogate_pair", "nul", "rate_of_text", "other_end_of_line",
}  # fmt: skip
"""Changes of a good entry after which it may still be one: its texts are cleaned as they are read."""


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def read(trial: Trial, text: str | bytes, codes: tuple[int, ...]) -> None:
    path = trial.write("entry.yaml", text)
    answer = trial.run(sys.executable, "-c", READ, path, seconds=SECONDS, preexec_fn=limit_memory)
    require(answer.code in codes, f"ended with {answer.code}: {answer.err[-400:]!a}")


def add_texts() -> None:
    for name, (old, new) in TEXTS.items():
        assert old in BASE, old
        what = f"Reads a good entry with {new[:40]!a} in the place of {old!r}."
        add(name, what, BASE.replace(old, new, 1), is_refused=name not in CLEANED)
    for name, text in ALLOWED.items():
        add(name, f"Reads an entry with the peculiarity `{name}`.", text, is_refused=False)


def add(name: str, what: str, text: str | bytes, *, is_refused: bool) -> None:
    end = f"within {SECONDS:.0f} s and {MEMORY >> 30} GiB, and nothing is executed"
    holds = f"it is {'refused' if is_refused else 'read or refused'} in one sentence, {end}"
    KIND.add(f"text_{name}", what, holds, partial(read, text=text, codes=(7,) if is_refused else (0, 7)))


add_texts()
