"""Calls of torch's operations become targets whose dims are free where the operation takes other sizes."""

from types import SimpleNamespace

import pytest
import torch

from benchmarks.honest import operations
from benchmarks.honest.calls import free_sizes
from benchmarks.honest.declarations import declare, find_shape, write
from benchmarks.honest.operations import Replaced, operations_of, why_not_graded
from fuzz.target.loader import load_module, targets_in


def info(name, *calls):
    """As much of an OpInfo as is read; each call is a tuple of arguments, and a dict of keywords at its end."""
    samples = [SimpleNamespace(input=args[0], args=args[1:-1], kwargs=args[-1]) for args in calls]
    made = SimpleNamespace(name=name, dtypes={torch.float32}, variant_test_name="")
    made.sample_inputs = lambda *_, **__: samples
    return made


def test_axes_are_dims_of_their_own_where_the_operation_lets_them():
    (made,) = declare(info("softmax", (torch.rand(5, 5), 1, {})))
    assert made.shapes == {"x0": ["x0_0", "x0_1"]}
    assert made.dims == {"x0_0": (1, 256), "x0_1": (1, 256)}
    assert made.outputs == {"0": ["x0_0", "x0_1"]}
    assert made.gradients
    assert made.dtypes == ("float32", "bfloat16", "float16")


def test_axes_that_must_be_equal_are_one_dim():
    (made,) = declare(info("mm", (torch.rand(3, 5), torch.rand(5, 4), {})))
    assert made.shapes == {"x0": ["D0", "D2"], "x1": ["D2", "D1"]}
    assert made.outputs == {"0": ["D0", "D1"]}


def test_an_operation_without_a_derivative_is_compared_without_gradients():
    """Of zeta's first argument: its result requires a gradient, and raises where that is computed."""
    (made,) = declare(info("special.zeta", (torch.rand(3), torch.rand(3), {})))
    assert torch.special.zeta(torch.rand(3).requires_grad_(), torch.rand(3)).requires_grad
    assert not made.gradients


def test_a_dtype_without_a_derivative_is_left_out():
    """Of the Bessel function i1 in half precision torch has the value alone."""
    (made,) = declare(info("special.i1", (torch.rand(3), {})))
    assert torch.special.i1(torch.ones(1, dtype=torch.half)).isfinite().all()
    assert made.gradients
    assert made.dtypes == ("float32",)


def test_a_dim_that_an_argument_fixes_is_not_free():
    (made,) = declare(info("nn.functional.layer_norm", (torch.rand(4, 3), [3], {"eps": 0.5})))
    assert made.dims == {"D0": (3, 3), "D1": (1, 65536)}
    assert made.args == [{"tensor": "x0"}, {"list": [3]}]
    assert made.kwargs == {"eps": 0.5}


@pytest.mark.parametrize(
    "sample",
    [
        info("rand_like", (torch.rand(3), {})),
        info("gather", (torch.rand(3, 3), 0, torch.zeros(3, 3, dtype=torch.int64), {})),
        info("view_as_complex", (torch.rand(3, 2), {})),
        info("exp", (torch.tensor(1.0), {})),
        info("no_such_operation", (torch.rand(3), {})),
        info("unique_consecutive", (torch.rand(5), {})),
        info("nn.functional.binary_cross_entropy", (torch.rand(5, 5), torch.rand(5, 5), {})),
    ],
    ids=lambda sample: sample.name,
)
def test_what_cannot_be_declared_is_left_out(sample):
    assert not list(declare(sample))


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        (info("nn.functional.adaptive_max_pool2d", (torch.rand(1, 3, 5, 6), [2, 3], {})), ""),
        (info("linalg.lu_factor", (torch.rand(3, 3), {})), "no rule says how"),
        (info("nn.functional.fractional_max_pool2d", (torch.rand(1, 4, 9, 9), 3, {"output_size": 2})), "random"),
        (info("float", (torch.rand(3), {})), "torch.float32, whatever"),
    ],
    ids=lambda part: getattr(part, "name", ""),
)
def test_why_a_declaration_cannot_be_graded(sample, reason):
    made = next(iter(declare(sample)))
    found = why_not_graded(made)
    assert (reason in found) if reason else not found


def test_shapes_of_results():
    seen = [({"a": a, "b": b}, (a, 7, 2 * b, a + 1)) for a, b in ((5, 8), (6, 4), (3, 9))]
    assert find_shape(seen) == ["a", "7", "2*b", "a + 1"]
    assert find_shape([(sizes, (sizes["a"] ** 2,)) for sizes, _ in seen]) == ["a*a"]
    assert find_shape([(sizes, (number,)) for (sizes, _), number in zip(seen, (17, 23, 5), strict=True)]) is None


def test_a_dim_is_as_large_as_an_index_among_the_arguments_needs():
    (made,) = declare(info("__getitem__", (torch.rand(5, 5), [1, 2], {})))
    assert made.dims == {"x0_0": (3, 256), "x0_1": (1, 256)}


@pytest.mark.parametrize(
    ("sample", "dims"),
    [
        (info("linalg.diagonal", (torch.rand(5, 5), {"offset": 2})), {"D0": (2, 256)}),
        (info("tensor_split", (torch.rand(3, 5), [2, 4], 1, {})), {"x0_0": (1, 256), "x0_1": (4, 256)}),
        (info("squeeze", (torch.rand(5, 3), 0, {})), {"x0_0": (2, 256), "x0_1": (1, 256)}),
        (info("slice_scatter", (torch.rand(5, 5), torch.rand(5, 5), 1, 0, 20, 1, {})), {"D0": (1, 20)}),
    ],
    ids=lambda part: getattr(part, "name", ""),
)
def test_results_have_the_declared_shapes_at_the_least_and_the_largest_sizes(sample, dims):
    (made,) = declare(sample)
    assert made.dims == dims


def test_a_call_that_names_a_device_is_left_out():
    assert list(declare(info("ones_like", (torch.rand(5, 5), {"device": "cpu"})))) == []


def test_sizes_of_free_dims_differ():
    dims = dict.fromkeys("abcde", (1, 64)) | {"f": (3, 3)}
    assert free_sizes(dims, (5, 7, 11, 13)) == {"a": 5, "b": 7, "c": 11, "d": 13, "e": 6, "f": 3}


def test_a_file_of_targets_runs_the_operation_in_each_dtype(tmp_path):
    (made,) = declare(info("softmax", (torch.rand(5, 5), 1, {})))
    write(tmp_path, made)
    targets = targets_in(load_module(tmp_path / "torch" / "softmax.py"))
    assert list(targets) == ["softmax_float32", "softmax_bfloat16", "softmax_float16"]
    x = torch.rand(2, 3)
    assert torch.equal(targets["softmax_float32"](x0=x)["y0"], x.softmax(1))
    assert list(targets["softmax_float16"].cotangents) == ["y0"]
    assert operations_of(made) == {"_softmax"}


def test_a_convolution_may_take_tf32_as_it_does_by_default(tmp_path):
    (conv,) = declare(info("nn.functional.conv1d", (torch.rand(1, 2, 9), torch.rand(3, 2, 4), {})))
    (product,) = declare(info("mm", (torch.rand(3, 5), torch.rand(5, 4), {})))
    dots = [operations.declare_one(__name__, "torch", made, "float32").dot for made in (conv, product)]
    assert dots == ["tf32", "ieee"]


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        ("HalfTensor is not supported", True),
        ("\"igammac_cuda\" not implemented for 'Half'", True),
        ("view size", False),
    ],
)
def test_an_operation_that_lacks_a_dtype_refuses(message, refused):
    with pytest.raises(NotImplementedError if refused else RuntimeError, match=message) as raised:
        with operations.refusals():
            raise RuntimeError(message)
    assert isinstance(raised.value, NotImplementedError) is refused


def test_results_are_no_larger_than_four_of_the_largest_arguments():
    (made,) = declare(info("outer", (torch.rand(3), torch.rand(4), {})))
    (low, high), other = made.dims.values()
    assert (low, high) == other == (1, 512)


def test_functions_take_the_place_of_operations():
    x = torch.ones(2)
    with Replaced({"add.Tensor": lambda a, b: a * 10 + b}):
        assert (x + x).tolist() == [11.0, 11.0]
    with pytest.raises(NotImplementedError, match="none of the operations"), Replaced({"add.Tensor": torch.add}):
        x.exp()
