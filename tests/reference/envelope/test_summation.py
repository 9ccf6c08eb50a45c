"""Sums of products, whose terms are added up for many rows at once."""

import pytest
import torch

from fuzz.reference.envelope.summation import losses, measure_product, measure_sum, strays


@pytest.mark.parametrize("measure", [strays, losses])
@pytest.mark.parametrize("shape", [(500, 2, 9), (3, 400, 70), (2, 17, 300, 5), (1, 1, 1)])
def test_rows_of_a_product_stray_as_each_does_alone(measure, shape):
    *batch, m, k, n = shape
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(*batch, *part, generator=generator, dtype=torch.float64) for part in ((m, k), (k, n)))
    a[..., -1, 0] = torch.inf
    rows = [measure_sum(row.unsqueeze(-2) * b.mT, [a.dim() - 1], measure).squeeze(-1) for row in a.unbind(-2)]
    assert torch.equal(measure_product(a, b, measure), torch.stack(rows, -2))


def test_short_rows_of_a_product_are_measured_together():
    calls = []

    def counted(lost, prefixes):
        calls.append(lost[0].shape)
        return strays(lost, prefixes)

    measure_product(torch.ones(5000, 4), torch.ones(4, 2), counted)
    assert calls == [(3, 10000)]
