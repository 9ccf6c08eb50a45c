"""Runs a surface on mutated seeds that Hypothesis draws, and shrinks an input on which it fails."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from benchmarks.self_fuzz.crashes import Check, Crashes, limit_time

WORD = re.compile(rb"[\w.!%#@^]+|[^\w\s]")
MAX_EDITS = 6
ROUND = 200
"""Inputs between two looks at the clock."""
LONGEST_PIECE = 64
"""Bytes that one edit takes from another seed."""


def words(seeds: Sequence[bytes]) -> list[bytes]:
    """What the seeds are made of, the most frequent first; and what breaks readers."""
    counts: dict[bytes, int] = {}
    for seed in seeds:
        for word in WORD.findall(seed):
            counts[word] = counts.get(word, 0) + 1
    usual = [word for word in sorted(counts, key=lambda word: -counts[word]) if len(word) <= 40]
    return [*usual[:500], b"-1", b"9" * 30, b"1e999", b"nan", b"\xff", b"\n", b"  ", b'"\\ud800"', "\u2028".encode()]


@st.composite
def mutated(draw: st.DrawFn, seeds: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    """A seed with up to MAX_EDITS edits: pieces are taken out, said again, replaced by words or by other pieces."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, MAX_EDITS))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, LONGEST_PIECE)))
        other = draw(st.sampled_from(seeds))
        at = draw(st.integers(0, len(other)))
        piece = draw(
            st.sampled_from(tokens)
            | st.binary(max_size=4)
            | st.sampled_from((b"", data[start:end] * 2, data[start:end] * 200, other[at : at + LONGEST_PIECE]))
        )
        data = data[:start] + piece + data[end:]
    return data


def run_mutations(check: Check, seeds: Sequence[bytes], seed: int, examples: int, crashes: Crashes) -> int:
    """Runs so many inputs of a seed; of a new defect the shrunk input is kept. Returns how many ran."""
    tokens, known, ran = words(seeds), set(crashes.inputs), 0

    @seeded(seed)
    @settings(
        max_examples=examples, deadline=None, database=None, phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip
    @given(mutated(seeds, tokens))
    def run(data: bytes) -> None:
        nonlocal ran
        ran += 1
        try:
            with limit_time():
                check(data)
        except Exception as error:
            assume(crashes.add(data, error) not in known)
            raise

    # What is raised is among the crashes.
    try:
        run()
    except Exception:
        pass
    return ran


def fuzz(check: Check, seeds: Sequence[bytes], seconds: float, seed: int, crashes: Crashes) -> int:
    """Runs rounds of mutated seeds for so many seconds. Returns how many inputs ran."""
    start, ran, number = time.monotonic(), 0, 0
    while time.monotonic() - start < seconds:
        ran += run_mutations(check, seeds, (seed << 20) + number, ROUND, crashes)
        number += 1
    return ran
