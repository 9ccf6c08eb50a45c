"""What a release of liger-kernel lacks or rules out is refused, and nothing else."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.releases import ROOT
from fuzz.target.loader import load_module


class Older:
    """An autograd function of a release that has neither scaling nor a way to write in place."""

    @staticmethod
    def forward(ctx: object, x: object, eps: float = 1e-6) -> None:
        """The eps is in the open interval (0, 1)."""

    @staticmethod
    def apply(*values: object) -> tuple[object, ...]:
        """Returns what it is called with."""
        return values


@pytest.fixture
def helpers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that the targets share, with a library of one function."""
    for name in ("liger_kernel", "liger_kernel.ops"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["liger_kernel"], "__path__", [str(tmp_path)], raising=False)
    monkeypatch.setitem(sys.modules, "liger_kernel.ops.norm", SimpleNamespace(Norm=Older))  # type: ignore[arg-type]
    spec = spec_from_file_location("liger_helpers", Path(ROOT, "targets", "liger", "_liger.py"))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("asked", [{"scaled": True}, {"scaled": 2.0}, {"softcap": 30.0}])
def test_what_a_release_lacks_is_refused(helpers: ModuleType, asked: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError):
        helpers.applied("norm:Norm", x=3, **asked)


def test_what_a_release_documents_narrower_is_refused(helpers: ModuleType) -> None:
    helpers.takes(Older.forward, "eps")
    helpers.beyond("norm:Norm", "closed interval")
    with pytest.raises(NotImplementedError):
        helpers.takes(Older.forward, "rotary_dim")
    with pytest.raises(NotImplementedError):
        helpers.beyond("norm:Norm", "open interval (0, 1)")


def test_the_same_bits_are_asked_of_releases_without_atomic_additions(helpers: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "norm.py").write_text("tl.store(DW_ptr + cols, dw)")
    assert helpers.same_bits("norm.py") is True is helpers.same_bits("lacking.py")
    (tmp_path / "ops" / "norm.py").write_text("tl.atomic_add(DW_ptr + cols, dw)")
    assert helpers.same_bits("norm.py") == "gradients of parameters are sums by atomic additions"


def test_what_a_module_of_a_release_refuses_is_refused(helpers: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(reduction: str) -> None:
        assert reduction in {"mean", "sum"}, "reduction must be 'mean' or 'sum'"

    def import_module(name: str) -> SimpleNamespace:
        if name != "liger_kernel.transformers.loss":
            raise ImportError("transformers has no name of that kind any more")
        return SimpleNamespace(Loss=loss)

    monkeypatch.setattr(helpers, "importlib", SimpleNamespace(import_module=import_module))
    helpers.permits("loss:Loss", reduction="mean")
    with pytest.raises(AssertionError, match="must be 'mean' or 'sum'"):
        helpers.permits("loss:Loss", reduction="none")
    with pytest.raises(NotImplementedError, match="cannot import broken:Loss"):
        helpers.permits("broken:Loss", reduction="mean")


def test_a_module_is_imported_without_the_models_that_its_package_patches(
    helpers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "transformers"
    package.mkdir()
    (package / "__init__.py").write_text("import peft\nfrom liger_kernel.transformers.loss import Loss\n")
    (package / "loss.py").write_text(
        "from liger_kernel.transformers import other\n"
        "try:\n    import peft\nexcept ImportError:\n    peft = None\n"
        "class Loss:\n    has_peft = peft is not None\n"
    )
    (package / "other.py").touch()
    (tmp_path / "peft.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    try:
        assert not helpers.found("loss:Loss", "transformers").has_peft
        assert not {"peft", "transformers", "liger_kernel.transformers"} & (set(sys.modules) - before)
        # Whoever asks for the package itself has all of it.
        whole = import_module("liger_kernel.transformers")
        assert whole.peft is import_module("peft")
        assert whole.Loss is helpers.found("loss:Loss", "transformers")
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]


@pytest.mark.parametrize("asked", [{"scaled": False}, {"scale": 1.0}, {"in_place": True}, {"in_place": False}])
def test_what_leaves_the_value_as_it_was_is_left_out(helpers: ModuleType, asked: dict[str, Any]) -> None:
    assert helpers.applied("norm:Norm", x=3, **asked) == (3,)


def test_values_that_a_narrow_format_holds_need_no_limit() -> None:
    """2^20 is beyond float16's range, in which torch refuses it as a bound."""
    pytest.importorskip("liger_kernel")
    norms = load_module(Path(ROOT, "targets", "liger", "norms.py"))
    assert norms.tame(torch.tensor([65504.0, -65504.0], dtype=torch.half)).tolist() == [65504.0, -65504.0]
    assert norms.tame(torch.tensor([2.0**30, -(2.0**30)])).tolist() == [2.0**20, -(2.0**20)]
