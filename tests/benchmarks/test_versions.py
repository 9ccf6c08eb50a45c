"""The versions of Triton that are called tested."""

from benchmarks.versions import VERSIONS
from fuzz.run.environment import TRITONS


def test_doctor_calls_tested_what_the_tests_run_under():
    assert VERSIONS == TRITONS
