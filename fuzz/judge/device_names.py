"""Finds out whether a solution decides by the name of a tensor's device, which on a machine without a GPU is cpu."""

from __future__ import annotations

import ast
from pathlib import Path

from fuzz.backends import BACKENDS
from fuzz.judge.waiting import parse_code, read_sources

NAMES = tuple({backend.device for backend in BACKENDS.values()})
METHODS = ("startswith", "__eq__", "__ne__")


def compares_devices(path: Path) -> bool:
    """Whether code in a solution's file compares something with the name of a device, or asks for its number."""
    return any(map(has_comparison, read_sources(path)))


def has_comparison(source: str) -> bool:
    tree = parse_code(source)
    return tree is not None and any(names_device(node) for node in ast.walk(tree) if is_comparison(node))


def is_comparison(node: ast.AST) -> bool:
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS
    return is_method or isinstance(node, ast.Compare | ast.MatchValue)


def names_device(comparison: ast.AST) -> bool:
    """Whether a text among the operands is the name of a device, or a tensor is asked for its device's number.

    A name that says where a tensor is to be made is no operand.
    """
    keywords = (node for node in ast.walk(comparison) if isinstance(node, ast.keyword))
    given = {id(node) for keyword in keywords for node in ast.walk(keyword)}
    return any(
        isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(NAMES)
        or isinstance(node, ast.Attribute) and node.attr == "get_device"
        for node in ast.walk(comparison) if id(node) not in given
    )  # fmt: skip
