"""Defines poison, the words of memory that nobody wrote. A float's is a signalling NaN, which no arithmetic gives."""

from __future__ import annotations

POISON = {
    "float64": 0x7FF5A5A5A5A5A5A5,
    "float32": 0x7FA5A5A5,
    "float16": 0x7DA5,
    "bfloat16": 0x7FA5,
    "int64": 0x5A5A5A5A5A5A5A5A,
    "int32": 0x5A5A5A5A,
    "int16": 0x5A5A,
    "int8": 0x5A,
    "uint8": 0x5A,
    "bool": 1,
}
"""Poison by dtype name, as unsigned words."""
