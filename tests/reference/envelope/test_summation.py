"""Sums of products, whose terms are added up for many rows at once."""

import pytest
import torch

from fuzz.reference.envelope.summation import error_magnitudes, matmul_errors, scan_errors, signed_errors, sum_errors


@pytest.mark.parametrize("measure", [error_magnitudes, signed_errors])
@pytest.mark.parametrize("shape", [(500, 2, 9), (3, 400, 70), (2, 17, 300, 5), (1, 1, 1)])
def test_rows_of_a_product_err_as_each_does_alone(measure, shape):
    *batch, m, k, n = shape
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(*batch, *part, generator=generator, dtype=torch.float64) for part in ((m, k), (k, n)))
    a[..., -1, 0] = torch.inf
    rows = [sum_errors(row.unsqueeze(-2) * b.mT, [a.dim() - 1], measure).squeeze(-1) for row in a.unbind(-2)]
    assert torch.equal(matmul_errors(a, b, measure), torch.stack(rows, -2))


def test_short_rows_of_a_product_are_measured_together():
    calls = []

    def counted(lost, prefixes):
        calls.append(lost[0].shape)
        return error_magnitudes(lost, prefixes)

    matmul_errors(torch.ones(5000, 4), torch.ones(4, 2), counted)
    assert calls == [(3, 10000)]


@pytest.mark.parametrize("measure", [error_magnitudes, signed_errors])
@pytest.mark.parametrize("shape", [(1,), (1, 1, 1), (4, 1), (4, 2), (3, 1, 200), (2, 7, 150)])
def test_prefixes_err_as_their_sums_do_and_the_first_one_does_not(measure, shape):
    terms = torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for dim in range(len(shape)):
        found = scan_errors(terms, dim, measure)
        assert found.shape[1:] == terms.shape
        assert not found.select(dim + 1, 0).any()
    if shape[-1] > 1:
        sums = scan_errors(terms.expand(2, *shape)[..., :2], len(shape), measure)[..., 1]
        assert torch.equal(sums, sum_errors(terms.expand(2, *shape)[..., :2], [len(shape)], measure).squeeze(-1))
