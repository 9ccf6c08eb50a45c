"""Parses the operations that have a syntax of their own: constants, loops, branches, calls, prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz.backends.cpu.frontend.ir import Op, Value
from fuzz.backends.cpu.frontend.types import Type

if TYPE_CHECKING:
    from fuzz.backends.cpu.frontend.parser import Parser


def constant(parser: Parser, name: str) -> Op:
    """`arith.constant true`, `arith.constant 1 : i32`, `arith.constant dense<0.0> : tensor<...>`."""
    tokens, op = parser.tokens, Op(name)
    text = tokens.take().text
    op.attributes["value"] = tokens.balanced("<", ">") if text == "dense" else text
    type = Type("i1")
    if tokens.accept(":"):
        type = parser.type()
    op.results = [Value("", type)]
    return op


def loop(parser: Parser, name: str) -> Op:
    """`scf.for [unsigned] %i = %a to %b step %c [iter_args(%x = %y) -> (types)] : type { ... }`."""
    tokens, op = parser.tokens, Op(name)
    op.attributes["unsigned"] = tokens.accept("unsigned")
    induction = tokens.expect_kind("value").text[1:]
    for word in ("=", "to", "step"):
        tokens.expect(word)
        op.operands.append(parser.operand())
    names: list[str] = []
    types: list[Type] = []
    if tokens.accept("iter_args"):
        names, initial = assignments(parser)
        op.operands += initial
        tokens.expect("->")
        types = parser.types()
    counter = Type("i32")
    if tokens.accept(":"):
        counter = parser.type()
    parser.scopes.append({})
    arguments = parser.define_all([induction, *names], [counter, *types])
    op.regions = [parser.region(arguments, own_scope=False)]
    parser.scopes.pop()
    if tokens.next.text == "{":
        parser.attributes(op)
    op.results = [Value("", type) for type in types]
    return op


def assignments(parser: Parser) -> tuple[list[str], list[Value]]:
    """`(%a = %b, ...)`: new names and their first values."""
    tokens = parser.tokens
    names, values = [], []
    tokens.expect("(")
    while not tokens.accept(")"):
        names.append(tokens.expect_kind("value").text[1:])
        tokens.expect("=")
        values.append(parser.operand())
        tokens.accept(",")
    return names, values


def branch(parser: Parser, name: str) -> Op:
    """`scf.if %c [-> (types)] { ... } [else { ... }]`."""
    tokens, op = parser.tokens, Op(name)
    op.operands = [parser.operand()]
    types = parser.types() if tokens.accept("->") else []
    op.regions = [parser.region([])]
    if tokens.accept("else"):
        op.regions.append(parser.region([]))
    if tokens.next.text == "{":
        parser.attributes(op)
    op.results = [Value("", type) for type in types]
    return op


def while_loop(parser: Parser, name: str) -> Op:
    """`scf.while (%a = %b) : (types) -> types { ... } do { ^bb0(...): ... }`."""
    tokens, op = parser.tokens, Op(name)
    names: list[str] = []
    if tokens.next.text == "(":
        names, op.operands = assignments(parser)
    tokens.expect(":")
    before = parser.types()
    tokens.expect("->")
    after = parser.types()
    parser.scopes.append({})
    arguments = parser.define_all(names, before)
    op.regions = [parser.region(arguments, own_scope=False)]
    parser.scopes.pop()
    tokens.expect("do")
    op.regions.append(parser.region([]))
    if tokens.accept("attributes"):
        parser.attributes(op)
    op.results = [Value("", type) for type in after]
    return op


def condition(parser: Parser, name: str) -> Op:
    """`scf.condition(%c) %a, %b : types`."""
    tokens, op = parser.tokens, Op(name)
    tokens.expect("(")
    op.operands = [parser.operand()]
    tokens.expect(")")
    while tokens.next.kind == "value":
        op.operands.append(parser.operand())
        tokens.accept(",")
    if tokens.accept(":"):
        parser.types()
    return op


def successor(parser: Parser) -> tuple[str, list[Value]]:
    """`^bb1(%a, %b : types)`."""
    tokens = parser.tokens
    label = tokens.expect_kind("block").text[1:]
    values: list[Value] = []
    if tokens.accept("("):
        while not tokens.accept(":"):
            values.append(parser.operand())
            tokens.accept(",")
        parser.types()
        tokens.expect(")")
    return label, values


def jump(parser: Parser, name: str) -> Op:
    """`cf.br ^bb` and `cf.cond_br %c, ^bb, ^bb`."""
    tokens, op = parser.tokens, Op(name)
    if tokens.next.kind == "value":
        op.operands = [parser.operand()]
        tokens.expect(",")
    op.successors.append(successor(parser))
    while tokens.accept(","):
        op.successors.append(successor(parser))
    return op


def display(parser: Parser, name: str) -> Op:
    """`tt.print " prefix: " {attributes} : %a, %b : types`."""
    tokens, op = parser.tokens, Op(name)
    op.keywords = [tokens.expect_kind("string").text]
    parser.attributes(op)
    if tokens.accept(":"):
        while tokens.next.kind == "value":
            op.operands.append(parser.operand())
            tokens.accept(",")
        tokens.expect(":")
        parser.types()
    return op


def call(parser: Parser, name: str) -> Op:
    """`tt.call @function(%a, %b) : (types) -> (types)`."""
    tokens, op = parser.tokens, Op(name)
    op.attributes["callee"] = tokens.expect_kind("symbol").text[1:].strip('"')
    op.operands = parser.operands_in_parentheses()
    parser.attributes_and_results(op)
    return op


def scaled_dot(parser: Parser, name: str) -> Op:
    """`tt.dot_scaled %a [scale %s], %b [scale %t], %c lhs = e4m3 rhs = e2m1 {attributes} : types -> type`."""
    tokens, op = parser.tokens, Op(name)
    for side in ("lhs", "rhs"):
        op.operands.append(parser.operand())
        op.attributes[f"{side}_scaled"] = tokens.accept("scale")
        if op.attributes[f"{side}_scaled"]:
            op.operands.append(parser.operand())
        tokens.expect(",")
    op.operands.append(parser.operand())
    while tokens.next.text != ":":
        parser.operand_or_attribute(op)
    parser.attributes_and_results(op)
    return op


def gather(parser: Parser, name: str) -> Op:
    """`tt.gather %source[%index] {axis = 0 : i32} : (types) -> type`."""
    tokens, op = parser.tokens, Op(name)
    op.operands = [parser.operand()]
    tokens.expect("[")
    op.operands.append(parser.operand())
    tokens.expect("]")
    if tokens.next.kind == "word":
        op.keywords.append(tokens.take().text)
    parser.attributes_and_results(op)
    return op
