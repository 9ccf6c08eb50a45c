"""Leaves out of the C that stands before every kernel what a kernel does not use: to read it takes most of the time.

The text is split into the least parts that are left out as a whole: a function, a macro, a block of the preprocessor.
Macros that make functions are expanded, so that each function is a part of its own. Parts keep their order, so what is
left is compiled to the same code.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
WORD = re.compile(r"[A-Za-z_]\w*")
USED = re.compile(r"(?:\.|->)\w+|([A-Za-z_]\w*)")
"""Its group is a word that names no member of a struct."""
OF_TINY_COMPILER = re.compile(r"#if(n?)def __TINYC__ *\n(.*?)#endif\n", re.DOTALL)
DEFINED = re.compile(r"([A-Za-z_]\w*)\s*[(\[]")
MACRO = re.compile(r"\s*#\s*define\s+(\w+)(?:\(([^)]*)\))?(.*)", re.DOTALL)
CALL = re.compile(r"\s*([A-Za-z_]\w*)\(")
ALWAYS = ("typedef", "enum")
"""How declarations begin that are never left out."""


@dataclass(frozen=True)
class Part:
    """A piece of C: the names that it defines, none where it is never left out, and the words in it."""

    text: str
    names: frozenset[str]
    words: frozenset[str]


class NeededText:
    """The parts of a C text, of which a kernel needs some."""

    def __init__(self, text: str) -> None:
        self.parts = list(parts(text))
        # By name, the numbers of the parts that define it.
        self.places: dict[str, set[int]] = {}
        for number, part in enumerate(self.parts):
            for name in part.names:
                self.places.setdefault(name, set()).add(number)
        self.names = frozenset(self.places)
        needs = [part.words & self.names for part in self.parts]
        self.needs = [frozenset().union(*(self.places[name] for name in names)) for names in needs]
        self.always = frozenset(number for number, part in enumerate(self.parts) if not part.names)

    def before(self, kernel: str) -> str:
        """What a kernel needs before its own text."""
        used = self.names.intersection(USED.findall(kernel))
        left = set(self.always).union(*(self.places[name] for name in used))
        needed: set[int] = set()
        while left:
            needed |= left
            left = set().union(*(self.needs[number] for number in left)) - needed
        return "\n".join(self.parts[number].text for number in sorted(needed)) + "\n"


@functools.cache
def needed_text(text: str) -> NeededText:
    """A text split into its parts, once for a process."""
    return NeededText(text)


def parts(text: str) -> Iterator[Part]:
    """The parts of a text in order, without its comments and what is for other compilers."""
    text = OF_TINY_COMPILER.sub(lambda block: "" if block[1] else block[2], COMMENT.sub("", text))
    lines = text.replace("\\\n", " ").splitlines()
    macros: dict[str, tuple[list[str], str]] = {}
    declarations: list[str] = []
    while lines:
        line = lines.pop(0)
        if not line.lstrip().startswith("#"):
            declarations.append(line)
            continue
        yield from declared_parts("\n".join(declarations), macros)
        declarations.clear()
        if macro := MACRO.match(line):
            if macro[2] is not None:
                macros[macro[1]] = [name.strip() for name in macro[2].split(",")], macro[3]
            yield part(line, {macro[1]})
        else:
            yield conditional_part(line, lines, macros)
    yield from declared_parts("\n".join(declarations), macros)


def conditional_part(line: str, lines: list[str], macros: dict[str, tuple[list[str], str]]) -> Part:
    """A block from `#if` to its `#endif`, or one other line of the preprocessor. Takes its lines from `lines`."""
    block, depth = [line], int(line.lstrip().startswith("#if"))
    while depth:
        block.append(lines.pop(0))
        depth += block[-1].lstrip().startswith("#if") - block[-1].lstrip().startswith("#endif")
    names = {macro[1] for one in block if (macro := MACRO.match(one))}
    code = "\n".join(one for one in block if not one.lstrip().startswith("#"))
    return part("\n".join(block), names.union(*(one.names for one in declared_parts(code, macros))))


def declared_parts(text: str, macros: dict[str, tuple[list[str], str]]) -> Iterator[Part]:
    """The declarations of a text without lines of the preprocessor; those that macros make are expanded."""
    while text.strip():
        call = CALL.match(text)
        if call and call[1] in macros:
            end = closing(text, call.end())
            yield from declared_parts(expanded(macros[call[1]], text[call.end() : end - 1]), macros)
        else:
            end = end_of_declaration(text)
            one = text[:end].strip()
            if one != ";":
                yield part(one, set() if one.startswith(ALWAYS) else defined_names(one))
        text = text[end:]


def part(text: str, names: set[str] | frozenset[str]) -> Part:
    return Part(text, frozenset(names), frozenset(USED.findall(text)))


def defined_names(declaration: str) -> set[str]:
    """The function that is defined, those that are declared, or the array."""
    if declaration.startswith("extern"):
        return set(DEFINED.findall(declaration)) or {declaration.rstrip("; ").rpartition("*")[2]}
    name = DEFINED.search(declaration)
    return {name[1]} if name else set()


def end_of_declaration(text: str) -> int:
    """Behind the first `;` outside of braces, or the brace that ends a function."""
    depth = 0
    for match in re.finditer(r"[{};]", text):
        depth += (match[0] == "{") - (match[0] == "}")
        is_value = text.lstrip().startswith(ALWAYS) or "=" in text[: match.start()].partition("{")[0]
        if depth == 0 and (match[0] == ";" or (match[0] == "}" and not is_value)):
            return match.end()
    return len(text)


def closing(text: str, start: int) -> int:
    """Behind the parenthesis that closes the one before `start`."""
    depth = 1
    while depth:
        depth += (text[start] == "(") - (text[start] == ")")
        start += 1
    return start


def expanded(macro: tuple[list[str], str], arguments: str) -> str:
    """The text of a macro with arguments."""
    parameters, body = macro
    # Not at the commas inside of parentheses, of which arguments have one pair at most.
    values = dict(zip(parameters, (one.strip() for one in re.split(r",(?![^(]*\))", arguments)), strict=True))
    return re.sub(r"\s*##\s*", "", WORD.sub(lambda word: values.get(word[0], word[0]), body))
