"""One-place mutants of good kernels, and how many of them a minute of fuzzing kills: `make mutations`.

A mutant is the module of a kernel with one expression of its syntax tree changed. Brute force judges it: live, within
rounding, or equivalent. A live one is killed where a run finds something that the good kernel does not show on the same
case. Every mutant's result is kept in .mutations, and a run goes on where the last one ended.
"""
