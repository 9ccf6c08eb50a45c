"""Functions end where inspect's tokenizer says so."""

import functools
import inspect
import linecache
from types import CodeType

import pytest
import triton.language.standard

from fuzz.backends import source_blocks
from fuzz.backends.source_blocks import block_end, finding_blocks_by_bytecode

SOURCES = {
    "pass behind": "def f(x):\n    x = 1\n    pass\n\n\ny = 1\n",
    "documentation alone": '@d\n@e(1)\ndef f(x):\n    """A\nb.\n    """\n\n@d\ndef g(): ...\n',
    "one line": "def f(x): return 1\n    # apart\ny = 1\n",
    "comments": "    def f(x):\n        return 1\n        # inside\n\n    # outside\n    y = 1\n",
    "bracket": "def f(x):\n    return (\n        x\n)\ny = 1\n",
    "text": 'def f(x):\n    x = 1\n    """\ny = 1\n    """\ny = 1\n',
    "inner": "def f(x):\n    def g(): pass\n    class A:\n        b = [\n        1\n]\n\ny = 1\n",
    "header": "@d(\n    1\n)\nasync def f(\n    x,\n):\n    for y in x: y()\n    else:\n        pass\n@d\nclass A: ...",
    "end": "def f(x):\n\treturn 1",
    "continued": "def f(x):\n    return 1 + \\\n2\ny = 1\n",
}


def functions_in(code):
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from functions_in(constant)


def compare(text, name="file"):
    """How many functions there are, and for how many of them bytecode shows where they end, as the tokenizer says."""
    lines = text.splitlines(keepends=True)
    known = []
    for code in functions_in(compile(text, name, "exec")):
        row = code.co_firstlineno - 1
        if lines[row].lstrip().startswith(("def ", "async def ", "@")):
            end = block_end(lines, row, code)
            assert end in (None, row + len(inspect.getblock(lines[row:]))), (name, row + 1)
            known.append(end is not None)
    return len(known), sum(known)


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_a_function_ends_where_the_tokenizer_says(name):
    text = SOURCES[name]
    if text.startswith(" "):
        text = f"if 1:\n{text}"
    assert compare(text)[0]


@pytest.mark.parametrize("module", [inspect, functools, triton.language.standard], ids=lambda module: module.__name__)
def test_bytecode_shows_it_of_most_functions(module):
    functions, known = compare("".join(linecache.getlines(module.__file__)), module.__name__)
    assert known >= 0.9 * functions > 20


def test_only_functions_are_found_by_bytecode(monkeypatch):
    """Classes, and what is wrapped, are left to inspect, and so is everything once the block has ended."""
    original, asked = inspect.getsourcelines, []

    def record(given):
        asked.append(given)
        return original(given)

    monkeypatch.setattr(source_blocks, "read_by_tokens", record)
    wrapped = functools.wraps(compare)(lambda: None)
    for given in (compare, functions_in, wrapped, pytest.Item):
        with finding_blocks_by_bytecode():
            lines = inspect.getsourcelines(given)
        assert lines == original(given)
    assert asked == [wrapped, pytest.Item] and inspect.getsourcelines is original
