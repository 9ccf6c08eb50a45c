"""Reads and writes entries as text, a strict subset of YAML.

There are no tags, anchors, aliases, repeated keys or implicit types. Tensors are hex words with their decimal values as
a comment, or a versioned recipe with overrides; options are decimal numbers that read back exactly. Reading never
executes anything, and is capped in size before it starts.
"""

from fuzz.corpus.codec.reader import loads
from fuzz.corpus.codec.strict_yaml import FORMAT, LARGEST_CASE, LARGEST_ENTRY
from fuzz.corpus.codec.writer import dumps, words_size

__all__ = ["FORMAT", "LARGEST_CASE", "LARGEST_ENTRY", "dumps", "loads", "words_size"]
