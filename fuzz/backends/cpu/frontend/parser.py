"""Parses TTIR text into a tree of operations. What is not known is refused; nothing is skipped."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from fuzz.backends.cpu.errors import MalformedIR, UnsupportedOperation
from fuzz.backends.cpu.frontend.ir import Attribute, Block, FuncOp, Op, SourceLocation, Value
from fuzz.backends.cpu.frontend.source_locations import SourceLocations
from fuzz.backends.cpu.frontend.tokens import Tokens, parse_integer, parse_number
from fuzz.backends.cpu.frontend.types import SIZES, Type
from fuzz.backends.cpu.ops.definition import OpDef, verify, written_or_last

TENSOR = re.compile(r"tensor<((?:[0-9]+x)+)(.*)>$")
POINTER = re.compile(r"!tt\.ptr<(.*?)(?:, (\d+))?>$")
MAX_DEPTH = 64
"""Regions inside each other: later steps follow them by recursion, as this parser does."""
MAX_RESULTS = 1 << 10
"""Results of one operation."""
Scope = dict[str, Value]


def parse(text: str, definitions: Mapping[str, OpDef]) -> list[FuncOp]:
    """The functions of a module, as `str(module)` prints it (with locations). `definitions` are known operations."""
    return Parser(text, definitions).module()


@lru_cache(maxsize=1 << 12)
def parse_type(text: str) -> Type:
    """A scalar, pointer or tensor type."""
    if match := TENSOR.match(text):
        return Type(parse_element(match[2]), tuple(parse_integer(size) for size in match[1].split("x") if size))
    return Type(parse_element(text))


def parse_element(text: str) -> str:
    if match := POINTER.match(text):
        if match[2] not in (None, "1"):
            raise UnsupportedOperation(f"address space {match[2]}")
        return "*" + parse_element(match[1])
    if text not in SIZES:
        raise UnsupportedOperation(f"type {text}")
    return text


class Parser:
    """Recursive descent over one module. Names live in nested scopes, as regions do."""

    def __init__(self, text: str, definitions: Mapping[str, OpDef]) -> None:
        self.tokens = Tokens(text)
        self.definitions = definitions
        self.locations = SourceLocations(text)
        self.scopes: list[Scope] = []
        self.depth = 0
        self.kernel = "?"

    def module(self) -> list[FuncOp]:
        tokens = self.tokens
        tokens.expect("module")
        if tokens.accept("attributes"):
            tokens.balanced("{", "}")
        tokens.expect("{")
        functions = []
        while not tokens.accept("}"):
            functions.append(self.function())
        self.location()
        tokens.expect_end()
        return functions

    def function(self) -> FuncOp:
        tokens = self.tokens
        tokens.expect("tt.func")
        public = not tokens.accept("private")
        tokens.accept("public")
        start = tokens.next.start
        self.kernel = tokens.expect_kind("symbol").text[1:].strip('"')
        self.scopes = [{}]
        try:
            parameters = self.block_arguments()
            if tokens.accept("->"):
                self.types()
        except UnsupportedOperation as refused:
            raise self.refusal(refused, "tt.func", start) from None
        if tokens.accept("attributes"):
            tokens.balanced("{", "}")
        blocks = self.region(parameters, own_scope=False)
        return FuncOp(self.kernel, blocks, self.location(), public)

    # names

    def define(self, name: str, type: Type | None = None) -> Value:
        scope = self.scopes[-1]
        used = scope.get(name)
        if used is not None and used.declared_type is not None:
            raise MalformedIR(f"%{name} is defined twice")
        value = used or Value(name.replace("#", "_"))
        value.declared_type = type
        scope[name] = value
        return value

    def define_all(self, names: list[str], types: list[Type]) -> list[Value]:
        if len(names) != len(types):
            raise MalformedIR(f"{len(names)} names have {len(types)} types")
        return [self.define(name, type) for name, type in zip(names, types, strict=True)]

    def use(self, token_text: str) -> Value:
        name = token_text[1:]
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        # Blocks are not always printed in the order of dominance: the definition may follow.
        return self.scopes[-1].setdefault(name, Value(name.replace("#", "_")))

    def operand(self) -> Value:
        return self.use(self.tokens.expect_kind("value").text)

    # regions

    def region(self, arguments: list[Value], own_scope: bool = True) -> list[Block]:
        """`{ ... }` with the arguments of its first block."""
        tokens = self.tokens
        tokens.expect("{")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnsupportedOperation(f"more than {MAX_DEPTH} regions inside each other")
        if own_scope:
            self.scopes.append({})
        blocks = [Block("", arguments)]
        while not tokens.accept("}"):
            if tokens.next.kind == "block":
                self.open_block(blocks)
            else:
                blocks[-1].ops.append(self.op())
        missing = [value.name for value in self.scopes[-1].values() if value.declared_type is None]
        if missing:
            raise MalformedIR(f"%{missing[0]} is used but not defined")
        if own_scope:
            self.scopes.pop()
        self.depth -= 1
        return blocks

    def open_block(self, blocks: list[Block]) -> None:
        label = self.tokens.take().text[1:]
        arguments = self.block_arguments() if self.tokens.next.text == "(" else []
        self.tokens.expect(":")
        if len(blocks) == 1 and not blocks[0].ops:
            blocks[0] = Block(label, blocks[0].arguments + arguments)
        else:
            blocks.append(Block(label, arguments))

    def block_arguments(self) -> list[Value]:
        """`(%a: type {attributes} loc(...), ...)`."""
        tokens, arguments = self.tokens, []
        tokens.expect("(")
        while not tokens.accept(")"):
            name = tokens.expect_kind("value").text[1:]
            tokens.expect(":")
            arguments.append(self.define(name, self.type()))
            if tokens.next.text == "{":
                tokens.balanced("{", "}")
            if tokens.next.text == "loc":
                self.location()
            tokens.accept(",")
        return arguments

    # operations

    def op(self) -> Op:
        names = self.result_names()
        token = self.tokens.take()
        name = token.text.strip('"')
        definition = self.definitions.get(name)
        try:
            if definition is not None and definition.parse is not None:
                op = definition.parse(self, name)
            else:
                op = self.generic(name) if token.kind == "string" else self.plain(name, definition)
            op.location = self.location()
            op.definition = verify(op, definition)
            self.define_results(op, names)
        except (UnsupportedOperation, MalformedIR) as refused:
            raise self.refusal(refused, name, token.start) from None
        return op

    def refusal(self, error: UnsupportedOperation | MalformedIR, name: str, offset: int) -> UnsupportedOperation:
        """The error with the kernel and the source line, which the innermost operation knows best."""
        if isinstance(error, MalformedIR):
            return UnsupportedOperation(f"{name} ({error})", self.kernel, str(self.location_near(offset)))
        if error.located:
            return error
        return UnsupportedOperation(error.what, self.kernel, str(self.location_near(offset)))

    def location_near(self, offset: int) -> SourceLocation:
        """The location printed first after the start of an operation that could not be parsed."""
        match = re.compile(r"loc\((#\w+)\)").search(self.tokens.text, offset)
        return self.locations.resolve(match[1] if match else "unknown")

    def result_names(self) -> list[str]:
        tokens = self.tokens
        names: list[str] = []
        if tokens.next.kind != "value":
            return names
        while not tokens.accept("="):
            name = tokens.expect_kind("value").text[1:]
            if tokens.accept(":"):
                count = parse_integer(tokens.expect_kind("number").text)
                if count > MAX_RESULTS:
                    raise MalformedIR(f"%{name} has {count} results")
                names += [f"{name}#{k}" for k in range(count)]
            else:
                names.append(name)
            tokens.accept(",")
        return names

    def define_results(self, op: Op, names: list[str]) -> None:
        if len(names) != len(op.results):
            raise UnsupportedOperation(f"{op.name} with {len(op.results)} results")
        scope = self.scopes[-1]
        for index, (name, result) in enumerate(zip(names, op.results, strict=True)):
            placeholder = scope.get(name)
            if placeholder is None:
                result.name = name.replace("#", "_")
                scope[name] = result
            else:
                op.results[index] = self.define(name, result.type)

    def plain(self, name: str, definition: OpDef | None) -> Op:
        """`name operands, keywords, key = value {attributes} : types -> types`."""
        tokens, op = self.tokens, Op(name)
        while tokens.next.text not in (":", "->", "loc"):
            self.operand_or_attribute(op)
        result_types = written_or_last if definition is None else definition.result_types
        op.results = [Value("", type) for type in result_types(*self.type_section())]
        return op

    def generic(self, name: str) -> Op:
        """`"name"(%a, ...) <{attributes}> ({ ... }, ...) {attributes} : (types) -> types`."""
        tokens, op = self.tokens, Op(name)
        op.operands = self.operands_in_parentheses()
        if tokens.accept("<"):
            self.attributes(op)
            tokens.expect(">")
        if tokens.accept("("):
            while not tokens.accept(")"):
                op.regions.append(self.region([]))
                tokens.accept(",")
        self.attributes_and_results(op)
        return op

    def operands_in_parentheses(self) -> list[Value]:
        operands = []
        self.tokens.expect("(")
        while not self.tokens.accept(")"):
            operands.append(self.operand())
            self.tokens.accept(",")
        return operands

    def attributes_and_results(self, op: Op) -> None:
        """`[{attributes}] : types -> types`."""
        if self.tokens.next.text == "{":
            self.attributes(op)
        _, outputs = self.type_section()
        op.results = [Value("", type) for type in outputs]

    def operand_or_attribute(self, op: Op) -> None:
        """One operand, keyword, named word or attribute list."""
        tokens = self.tokens
        token = tokens.next
        if token.kind == "value":
            op.operands.append(self.operand())
        elif token.kind == "word" and tokens.peek().text == "=":
            tokens.position += 2
            op.attributes[token.text] = self.attribute_value()
        elif token.kind == "word" and tokens.peek().text == "<":
            tokens.take()
            op.attributes[token.text] = tokens.balanced("<", ">")
        elif token.kind in ("word", "string"):
            op.keywords.append(tokens.take().text)
        elif token.text == "{":
            self.attributes(op)
        elif token.text == "<" and tokens.peek().text == "{":
            tokens.take()
            self.attributes(op)
            tokens.expect(">")
        elif not tokens.accept(","):
            raise UnsupportedOperation(f"{op.name} (unknown syntax {tokens.line_at(token.start)!r})")

    def type_section(self) -> tuple[list[Type], list[Type]]:
        tokens = self.tokens
        inputs = self.types() if tokens.accept(":") else []
        if tokens.accept("->") or tokens.accept("to"):
            return inputs, self.types()
        return inputs, []

    def types(self) -> list[Type]:
        """Types separated by `,` or `*`, with or without parentheses."""
        tokens, types = self.tokens, []
        closed = not tokens.accept("(")
        while tokens.next.kind in ("type", "word") and tokens.next.text not in ("loc", "to"):
            types.append(self.type())
            if not (tokens.accept(",") or tokens.accept("*")):
                break
        if not closed:
            tokens.expect(")")
        return types

    def type(self) -> Type:
        return parse_type(self.tokens.take().text)

    # attributes and locations

    def attributes(self, op: Op) -> None:
        """`{name = value, flag, ...}`."""
        tokens = self.tokens
        tokens.expect("{")
        while not tokens.accept("}"):
            name = tokens.take().text
            op.attributes[name] = self.attribute_value() if tokens.accept("=") else True
            tokens.accept(",")

    def attribute_value(self) -> Attribute:
        tokens = self.tokens
        token = tokens.take()
        if token.kind == "string":
            return token.text[1:-1]
        if token.text in ("true", "false"):
            return token.text == "true"
        if token.text == "array":
            items = tokens.balanced("<", ">").partition(":")[2]
            return [parse_integer(item.strip()) for item in items.split(",")] if items.strip() else []
        if token.text == "dense":
            text = tokens.balanced("<", ">")
            tokens.expect(":")
            tokens.take()
            return text
        if token.kind == "number":
            if tokens.accept(":"):
                tokens.take()
            return parse_number(token.text)
        if token.kind == "word":
            return token.text
        if token.kind == "alias":
            return f"{token.text}<{tokens.balanced('<', '>')}>" if tokens.next.text == "<" else token.text
        raise UnsupportedOperation(f"attribute value {token.text!r}")

    def location(self) -> SourceLocation:
        self.tokens.expect("loc")
        return self.locations.resolve(self.tokens.balanced("(", ")"))
