"""Elementwise targets by plain torch, for tests of sweeps: loaded by path, as a person's own file is."""

import torch

from fuzz import option, size, target, tensor

N, K = size("N", 1, 262144), size("K", 1, 8)
HALF = ("bfloat16", "float16")


@target(x=tensor(N), dtypes=HALF, batch=N, nonfinite=("x",), reference=lambda x: dict(y=x))
def same(x):
    return dict(y=x.clone())


@same.planted("needle", oracle="accuracy", outputs=("y",))
def needle(x):
    """One bit pattern, that of 3.140625 in bfloat16, comes out negative."""
    return dict(y=torch.where(x == 3.140625, -x, x))


@same.planted("late", oracle="accuracy", outputs=("y",))
def late(x):
    """Only elements from the thousandth on are wrong."""
    y = x.clone()
    y[1000:2000] *= 2
    return dict(y=y)


@same.planted("flushes", oracle="accuracy", outputs=("y",))
def flushes(x):
    """Subnormal numbers become 0."""
    return dict(y=torch.where(x.abs() < torch.finfo(x.dtype).smallest_normal, x * 0, x))


@same.planted("dies", oracle="fault", outputs=("launcher",))
def dies(x):
    """No kernel comes back."""
    raise RuntimeError("the kernel is gone")


@target(x=tensor(N), count=N, dtypes=HALF, batch=N, reference=lambda x, count: dict(y=x[:count]))
def counted(x, count):
    """As kernels that are told how many elements there are."""
    return dict(y=x[:count].clone())


@target(x=tensor(N), k=K, dtypes=HALF, batch=N, reference=lambda x, k: dict(y=x * k))
def others(x, k):
    """A size that belongs to no tensor."""
    return dict(y=x * k)


def unstable(x, y, scale):
    return dict(z=(1 + torch.erf(x)) * y * scale)


@target(
    x=tensor(N), y=tensor(N), scale=option(1.0, 2.0), dtypes=("bfloat16",), batch=N, reference=unstable, linear=("y",)
)
def one_plus_erf(x, y, scale):
    """A good kernel whose reference cancels: float64 alone cannot tell what is right below x = -6."""
    exact = torch.special.erfc(-x.double()) * y.double() * scale
    return dict(z=exact.float().to(x.dtype))


@target(x=tensor(N), dtypes=HALF, batch=N, reference=lambda x: dict(y=torch.log(x)))
def logarithm(x):
    """NaN for negative inputs, as is due."""
    return dict(y=torch.log(x.double()).to(x.dtype))


@target(x=tensor(N), dtypes=HALF, batch=N, reference=lambda x: dict(y=torch.exp(x)))
def exponential(x):
    """Infinite for large inputs, as is due; so is the reference."""
    return dict(y=torch.exp(x.double()).to(x.dtype))


@target(x=tensor(N), dtypes=HALF, batch=N, reference=lambda x: dict(y=torch.log(1 + torch.exp(x))))
def softplus(x):
    """Right where its reference is infinite, from 710 on."""
    x = x.double()
    return dict(y=(x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))).to(torch.float16))


@softplus.planted("overflows", oracle="accuracy", outputs=("y",))
def overflows(x):
    """Infinite wherever its reference is."""
    return dict(y=torch.log(1 + torch.exp(x.double())).to(torch.float16))
