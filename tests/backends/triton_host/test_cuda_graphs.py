"""Captured work is repeated by replays, and leaves everything as it was until then."""

from collections.abc import Iterator

import pytest
import torch
import triton
import triton.language as tl

from fuzz.backends import cpu


@pytest.fixture(autouse=True)
def active() -> Iterator[None]:
    with cpu.active():
        yield


@triton.jit
def add_one(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.load(x + i) + 1)


def plus_one(x):
    y = torch.empty_like(x)
    add_one[(1,)](x, y, x.numel())
    return y


def captured(function):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function()
    return graph, result


def test_a_replay_computes_with_the_values_of_now():
    x = torch.zeros(4)
    graph, (y, total) = captured(lambda: (y := plus_one(x), (2 * y[1:]).sum()))
    for value in (3, 5):
        x.fill_(value)
        graph.replay()
        assert y.tolist() == [value + 1] * 4
        assert total == 6 * (value + 1)


def test_a_capture_leaves_memory_as_it_was():
    x, y, sums = torch.zeros(4), torch.zeros(4), torch.ones(1, 4)

    def change():
        x[1:].add_(1)
        add_one[(1,)](x, y, 4)
        sums[0].copy_(y)

    graph, _ = captured(change)
    assert (x.tolist(), y.tolist(), sums.tolist()) == ([0] * 4, [0] * 4, [[1] * 4])
    graph.replay()
    graph.replay()
    assert (x.tolist(), y.tolist(), sums.tolist()) == ([0, 2, 2, 2], [1, 3, 3, 3], [[1, 3, 3, 3]])


def test_running_means_that_a_schema_does_not_mention_are_restored():
    mean, variance = torch.zeros(2), torch.ones(2)
    x = torch.tensor([[0.0, 1.0], [2.0, 5.0]])
    graph, _ = captured(lambda: torch.nn.functional.batch_norm(x, mean, variance, training=True, momentum=0.5))
    assert mean.tolist() == [0, 0]
    graph.replay()
    assert mean.tolist() == [0.5, 1.5]


def test_random_numbers_are_drawn_by_replays():
    torch.manual_seed(3)
    expected = [torch.rand(2).tolist() for _ in range(2)]
    torch.manual_seed(3)
    graph, drawn = captured(lambda: torch.rand(2))
    replayed = []
    for _ in range(2):
        graph.replay()
        replayed.append(drawn.tolist())
    assert replayed == expected


def test_memory_that_nothing_in_the_graph_writes_is_kept():
    graph, (x, zeros) = captured(lambda: (torch.empty(2), torch.zeros(2)))
    x.fill_(7)
    zeros.fill_(7)
    graph.replay()
    assert (x.tolist(), zeros.tolist()) == ([7, 7], [0, 0])


def test_a_graph_keeps_the_memory_that_its_tensors_had():
    x = torch.ones(2)
    memory = x.detach()
    graph, y = captured(lambda: 2 * x)
    x.data = torch.full((2,), 5.0)
    memory.fill_(3)
    graph.replay()
    assert y.tolist() == [6, 6]


def test_modules_with_gradients_are_captured():
    torch.manual_seed(0)
    module, x = torch.nn.Linear(3, 2), torch.randn(4, 3, requires_grad=True)
    expected = torch.autograd.grad(module(x).square().sum(), [x, *module.parameters()])
    graphed = torch.cuda.make_graphed_callables(module, (torch.randn(4, 3, requires_grad=True),))
    found = torch.autograd.grad(graphed(x).square().sum(), [x, *module.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


def test_compiled_functions_are_captured():
    compiled = torch.compile(lambda x: x + 1, backend="eager", fullgraph=True)
    x = torch.zeros(2)
    graph, y = captured(lambda: compiled(x))
    x.fill_(4)
    graph.replay()
    assert y.tolist() == [5, 5]


def test_a_capture_that_fails_has_ended():
    x = torch.zeros(2)

    def fail():
        assert torch.cuda.is_current_stream_capturing()
        x.add_(1)
        raise KeyError("x")

    with pytest.raises(KeyError):
        captured(fail)
    assert not torch.cuda.is_current_stream_capturing()
    assert x.tolist() == [0, 0]
    x.add_(1)
    assert x.tolist() == [1, 1]


def test_a_shape_that_depends_on_values_is_refused():
    x = torch.ones(3)
    graph, _ = captured(lambda: x.nonzero())
    x[0] = 0
    with pytest.raises(RuntimeError, match="a shape depends on values: aten.nonzero"):
        graph.replay()


def test_calls_in_the_wrong_order_are_refused():
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with pytest.raises(RuntimeError, match="not being captured"):
        graph.capture_end()
    with torch.cuda.graph(graph), pytest.raises(RuntimeError, match="another CUDA graph"):
        torch.cuda.CUDAGraph().capture_begin()
    graph.replay()
    graph.reset()
    with pytest.raises(RuntimeError, match="without a preceding"):
        graph.replay()
    with pytest.raises(NotImplementedError, match="GPU's driver"):
        graph.debug_dump("graph.dot")
