"""A call that ends its process or hangs costs its own result alone."""

import os
import time

from benchmarks.honest.forks import map_in_forks


def test_calls_are_apart(capfd):
    calls = [lambda: 5, lambda: os._exit(3), lambda: time.sleep(600), lambda: [7]]
    assert map_in_forks(lambda number: calls[number](), 4, jobs=4, seconds=5.0) == [5, None, None, [7]]
    said = capfd.readouterr().err
    assert "1: its process ended with status 3" in said
    assert "2: its process was killed" in said
