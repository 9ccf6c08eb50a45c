"""Targets of plain tensor operations with one planted bug for every oracle and symptom that a script can show."""

import os  # noqa: F401  Planted bugs use it.
import signal  # noqa: F401
import time  # noqa: F401

import torch
from _helper import doubled as twofold
from _helper import toy

from fuzz import option, size, tensor

M, N, K = size("M", 1, 8), size("N", 1, 8), size("K", 1, 8)
CALLED, LAST = [0], {}


class Scaled(torch.autograd.Function):
    """2 x w, with a mistake, or none."""

    @staticmethod
    def forward(ctx, x, w, mistake):
        if mistake == "keeps":
            ctx.kept = x, w
        else:
            ctx.save_for_backward(x.clone() if mistake == "overwrites" else x, w.clone() if "saved" in mistake else w)
        ctx.mistake = mistake
        LAST["x"] = x
        y = twofold(x) * w
        if mistake == "overwrites":
            x.data.zero_()
        return x.view_as(x) if mistake == "aliased" else y

    @staticmethod
    def backward(ctx, dy):
        mistake = ctx.mistake
        x, w = ctx.kept if mistake == "keeps" else ctx.saved_tensors
        x = LAST["x"] if mistake == "last call" else x
        if mistake == "raises" and not ctx.needs_input_grad[1]:
            raise RuntimeError("broken")
        dx, dw = twofold(dy * w), twofold(dy * x).sum(0)
        if mistake == "wrong gradient":
            dw = dw + 1
        if mistake == "wrong alone" and not ctx.needs_input_grad[1]:
            dx = dx + 1
        if mistake == "writes its gradient":
            dy.data.zero_()
        if mistake == "spoils what it saved":
            w.data.mul_(2)
        return dx, None if mistake == "no gradient" else dw, None


def short(w, **others):
    return dict(w=w[:-1])


def checked(x, w):
    if x.shape[-1] != w.shape[0]:
        raise ValueError("shapes do not fit")


@toy(
    x=tensor(M, N), w=tensor(N), k=K,
    rejects=dict(short_w=short, long_x=lambda x, **others: dict(x=torch.cat([x, x], 1))),
    reference=lambda x, w, k: dict(y=2 * x * w), differentiable=dict(y=tensor(M, N)), rows=dict(y=M, dx=M),
)  # fmt: skip
def scaled(x, w, k):
    checked(x, w)
    assert k > 0
    return dict(y=Scaled.apply(x, w, ""))


def mistaken(name, oracle, mistake):
    scaled.planted(
        name, oracle=oracle, outputs=("dx",), change=('Scaled.apply(x, w, "")', f'Scaled.apply(x, w, "{mistake}")')
    )


mistaken("wrong_gradient", "accuracy", "wrong gradient")
mistaken("aliased", "mutation", "aliased")
mistaken("overwrites", "mutation", "overwrites")
mistaken("writes_its_gradient", "mutation", "writes its gradient")
mistaken("no_gradient", "autograd", "no gradient")
mistaken("raises", "autograd", "raises")
mistaken("wrong_alone", "autograd", "wrong alone")
mistaken("spoils_what_it_saved", "autograd", "spoils what it saved")
mistaken("keeps", "autograd", "keeps")
mistaken("last_call", "autograd", "last call")
scaled.planted(
    "no_grad",
    oracle="autograd",
    outputs=("y",),
    change=('Scaled.apply(x, w, "")', 'Scaled.apply(x, w, "") * (2 - torch.is_grad_enabled())'),
)
scaled.planted(
    "accepts", oracle="rejects", outputs=("y",), change=("    checked(x, w)\n", "    w = w[:1].expand(x.shape[-1])\n")
)
scaled.planted(
    "fails", oracle="fault", outputs=("y",), change=("    checked(x, w)\n", "    raise RuntimeError('broken')\n")
)


class Both(torch.autograd.Function):
    """2 x and x w, of which one may be used alone."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, w)
        return twofold(x), x * w

    @staticmethod
    def backward(ctx, da, db):
        x, w = ctx.saved_tensors
        if db is None:
            return 2 * da, None
        return db * w + (0 if da is None else 2 * da), (db * x).sum(0)


@toy(
    x=tensor(M, N), w=tensor(N), differentiable=dict(a=tensor(M, N), b=tensor(M, N)),
    reference=lambda x, w: dict(a=2 * x, b=x * w),
)  # fmt: skip
def both(x, w):
    a, b = Both.apply(x, w)
    return dict(a=a, b=b)


for name, text in (("wrong_first", "return 3 * da, None"), ("fails_first", "return 2 * da + db, None")):
    both.planted(name, oracle="autograd", outputs=("dx",), change=("return 2 * da, None", text))


class Steep(torch.autograd.Function):
    """2 x and exp(10000 x), which overflows: 0 times its derivative is NaN."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        b = torch.exp(10000 * x)
        ctx.save_for_backward(b)
        return twofold(x), b

    @staticmethod
    def backward(ctx, da, db):
        if db is None:
            return 2 * da
        return db * 10000 * ctx.saved_tensors[0] + (0 if da is None else 2 * da)


@toy(
    x=tensor(M, N), differentiable=dict(a=tensor(M, N), b=tensor(M, N)),
    reference=lambda x: dict(a=2 * x, b=torch.exp(10000 * x)),
)  # fmt: skip
def steep(x):
    a, b = Steep.apply(x)
    return dict(a=a, b=b)


steep.planted("triple", oracle="autograd", outputs=("dx",), change=("return 2 * da\n", "return 3 * da\n"))


@toy(
    x=tensor(M, N), shift=option(0.0, 1.0), batch=M, layout="bitwise", linear=("x",), timeout=3.0,
    reference=lambda x, shift: dict(y=2 * x),
)  # fmt: skip
def plain(x, shift):
    return dict(y=twofold(x))


for name, oracle, text in (
    ("wrong", "accuracy", "dict(y=twofold(x) + 1)"),
    ("unwritten", "bounds", "dict(y=torch.empty_like(x))"),
    ("counts", "deterministic", "dict(y=twofold(x) * (CALLED.append(0) or len(CALLED)))"),
    ("not_strided", "layout", "dict(y=twofold(x) * (1 if x.is_contiguous() else 3))"),
    ("by_batch", "invariance", "dict(y=twofold(x) * len(x))"),
    ("by_place", "scaling", "dict(y=twofold(x) * torch.arange(1, len(x) + 1).unsqueeze(1))"),
    ("not_linear", "scaling", "dict(y=twofold(x) + x * x)"),
    ("keeps_its_output", "mutation", "dict(y=LAST.setdefault(x.shape, torch.empty_like(x)).copy_(twofold(x)))"),
    ("dies", "fault", "os.kill(os.getpid(), signal.SIGKILL)"),
    ("hangs", "fault", "time.sleep(1000)"),
):
    plain.planted(name, oracle=oracle, outputs=("y",), change=("dict(y=twofold(x))", text))


@toy(
    x=tensor(M, N), batch=M, shifts=("x",), invariance="envelope",
    reference=lambda x: dict(y=x - x[:, :1]),
)  # fmt: skip
def differences(x):
    return dict(y=x - x[:, :1])


for name, oracle, text in (
    ("drifts_by_layout", "layout", "x - x[:, :1] * (1 if x.is_contiguous() else 3)"),
    ("drifts_by_batch", "invariance", "x - x[:, :1] * len(x)"),
    ("keeps_the_first", "scaling", "x * 1.0"),
):
    differences.planted(
        name, oracle=oracle, outputs=("y",), change=("return dict(y=x - x[:, :1])", f"return dict(y={text})")
    )


def halved(x):
    return dict(y=x / 2)


@toy(x=tensor(M, N), contract="bitwise", baseline=halved)
def half(x):
    return dict(y=x * 0.5)


half.planted("third", oracle="accuracy", outputs=("y",), change=("x * 0.5", "x / 3"))
