"""Oracles: questions asked of a case, each a file with one class. Add yours to one of the two lists."""

from fuzz.oracles.accuracy import Accuracy
from fuzz.oracles.autograd import Autograd
from fuzz.oracles.base import Oracle
from fuzz.oracles.bounds import Bounds
from fuzz.oracles.deterministic import Deterministic
from fuzz.oracles.fault import Fault
from fuzz.oracles.invariance import Invariance
from fuzz.oracles.layout import Layout
from fuzz.oracles.mutation import Mutation
from fuzz.oracles.rejects import Rejects
from fuzz.oracles.scaling import Scaling

ALWAYS: tuple[Oracle, ...] = (Bounds(), Mutation(), Accuracy())
"""Oracles that examine every case that returns, in the order in which a case is filed."""
SAMPLED: tuple[Oracle, ...] = (Rejects(), Autograd(), Deterministic(), Invariance(), Layout(), Scaling())
"""Oracles that examine a share of the cases."""
ORACLES: tuple[Oracle, ...] = (Fault(), *ALWAYS, *SAMPLED)
