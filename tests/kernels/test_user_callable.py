"""A user's callable is called by the names of its parameters, or refused in one clear line."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from verify.kernels.kernel import Kernel, KernelError
from verify.kernels.registry import kernel_named
from verify.kernels.third_party.user_callable import callables, guess_formula

MODULE = """
import functools
import math
import numpy as np

CONSTANT = 3.0

def plain_rms(x, weight, bias, eps):
    return x + (0 if weight is None else weight) + (0 if bias is None else bias) + eps

def no_bias_rms(x, weight, eps):
    return plain_rms(x, weight, None, eps)

def default_rms(x, weight, bias=None, eps=1e-5):
    return plain_rms(x, weight, bias, eps)

def renamed_rms(epsilon, hidden_states, *, gamma, beta=None, unused=3):
    return plain_rms(hidden_states, gamma, beta, epsilon)

def short_rms(inp, w, b, variance_epsilon):
    return plain_rms(inp, w, b, variance_epsilon)

def positional_rms(hidden, scale, /, eps):
    return plain_rms(hidden, scale, None, eps)

class Layer:
    @staticmethod
    def rms(input, weight, eps):
        return plain_rms(input, weight, None, eps)

    def __call__(self, x, weight, bias, eps):
        return plain_rms(x, weight, bias, eps)

an_rms_instance = Layer()

def group_norm(x, num_groups, weight, bias, eps):
    return x * num_groups

def partial_group(x, weight, bias, eps):
    return x

def strange_rms(a, weight, eps):
    return a

def no_eps_rms(x, weight):
    return x

def more_rms(x, weight, eps, seed):
    return x

def any_rms(*args, **kwargs):
    return args[0]

def scalar_rms(x, weight, eps):
    return 1.0

partial_rms = functools.partial(more_rms, seed=3)
"""


@pytest.fixture(autouse=True)
def path_as_before(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("nothing_of_that_name\n")
    (tmp_path / "needs.py").write_text("import not_installed_at_all\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(target: str, **options: str):
    """What the child process does with the kernel of that name."""
    return callables(**kernel_named(target, **options).arguments)


def refused(target: str, **options: str) -> str:
    with pytest.raises(KernelError) as error:
        load(target, **options)
    line = str(error.value)
    assert "\n" not in line
    return line


X = np.array([[1.0, 2.0]], np.float32)
W = np.array([10.0, 20.0], np.float32)
B = np.array([100.0, 200.0], np.float32)


@pytest.mark.parametrize("form", ["mine:{}", "mine.py:{}", "./mine.py:{}", "{folder}/mine.py:{}"])
def test_both_ways_to_write_it(folder, form):
    kernel = load(form.replace("{folder}", str(folder)).format("plain_rms"))
    assert np.array_equal(kernel.forward(X, W, B, 0.5), X + W + B + 0.5)


WITH_BIAS = ["plain_rms", "default_rms", "renamed_rms", "short_rms", "an_rms_instance"]
WITHOUT = ["no_bias_rms", "positional_rms", "Layer.rms"]


@pytest.mark.parametrize("name", [*WITH_BIAS, *WITHOUT])
def test_accepted_signatures(folder, name):
    kernel = load(f"mine:{name}")
    bias = B if name in WITH_BIAS else None
    assert kernel.parameters == (("weight", "bias") if name in WITH_BIAS else ("weight",))
    assert kernel.backward is None
    expected = X + W + (0 if bias is None else B) + 0.5
    assert np.array_equal(kernel.forward(X, W, bias, 0.5), expected)
    assert np.array_equal(kernel.forward(X, None, None, 0.5), X + 0.5)


def test_a_partial_is_a_callable_too(folder):
    assert np.array_equal(load("mine:partial_rms").forward(X, W, None, 0.5), X)


def test_group_norm_gets_its_number_of_groups(folder):
    kernel = load("mine:group_norm")
    assert np.array_equal(kernel.forward(X, W, B, 0.5, num_groups=4), 4 * X)


def test_a_bias_that_has_no_place_is_refused(folder):
    with pytest.raises(KernelError, match="mine:no_bias_rms has no bias: expected None"):
        load("mine:no_bias_rms").forward(X, W, B, 0.5)


def test_a_result_that_is_no_array_is_refused(folder):
    with pytest.raises(KernelError, match="mine:scalar_rms gave float: expected one numpy"):
        load("mine:scalar_rms").forward(X, W, None, 0.5)


FORMS = "write package.module:callable or path/to/file.py:callable"

REFUSED = {
    "mine:": f"'mine:' names no callable: {FORMS}",
    ":rms": f"':rms' names no callable: {FORMS}",
    "mine:not a name": f"'mine:not a name' names no callable: {FORMS}",
    "a b:rms": f"'a b:rms' names no callable: {FORMS}",
    "no_such_module:rms": (
        "no module named 'no_such_module' for no_such_module:rms, neither installed nor in the "
        f"current directory: {FORMS}"
    ),
    "mine.deeper:rms": f"no module named 'mine.deeper' for 'mine.deeper': {FORMS}",
    "no/such.py:rms": f"no file 'no/such.py' for no/such.py:rms: {FORMS}",
    "broken:rms": (
        "'broken' does not import: NameError: name 'nothing_of_that_name' is not defined"
    ),
    "broken.py:rms": (
        "'broken.py' does not import: NameError: name 'nothing_of_that_name' is not defined"
    ),
    "needs:rms": (
        "'needs' does not import: ModuleNotFoundError: No module named 'not_installed_at_all'"
    ),
    "mine:plain_rsm": (
        "which formula does mine:plain_rsm compute? Its name does not say: expected a name with "
        "rms, layer, ln or group in it, or write --formula with one of "
    ),
    "mine:plane_rms": (
        "mine has no 'plane_rms': expected the name of a callable in it; did you mean 'plain_rms'?"
    ),
    "mine:strange_rms": (
        "mine:strange_rms has the parameters (a, weight, eps): expected (x, weight, eps) or "
        "(x, weight, bias, eps), by name; none of them is called x or input or hidden_states or "
        "hidden or inp"
    ),
    "mine:no_eps_rms": (
        "mine:no_eps_rms has the parameters (x, weight): expected (x, weight, eps) or "
        "(x, weight, bias, eps), by name; none of them is called eps or epsilon or "
        "variance_epsilon"
    ),
    "mine:more_rms": (
        "mine:more_rms has the parameters (x, weight, eps, seed): expected (x, weight, eps) or "
        "(x, weight, bias, eps), by name; give 'seed' a default"
    ),
    "mine:any_rms": (
        "mine:any_rms has the parameters (): expected (x, weight, eps) or "
        "(x, weight, bias, eps), by name; none of them is called x or input or hidden_states or "
        "hidden or inp"
    ),
    "mine:partial_group": (
        "mine:partial_group has the parameters (x, weight, bias, eps): expected "
        "(x, weight, eps, num_groups) or (x, weight, bias, eps, num_groups), by name; none of "
        "them is called num_groups or groups or n_groups"
    ),
}


@pytest.mark.parametrize(("target", "line"), REFUSED.items(), ids=REFUSED.keys())
def test_what_cannot_be_called_is_refused_in_one_line(folder, target, line):
    assert refused(target).startswith(line)


def test_other_refusals(folder):
    line = refused("mine:CONSTANT", formula="rms_norm")
    assert line == (
        "mine:CONSTANT is of type float: expected a callable f(x, weight, eps) or "
        "(x, weight, bias, eps)"
    )
    line = refused("mine:plain_rms", formula="rmsnorm")
    assert line.startswith("unknown formula 'rmsnorm' for a callable: expected one of rms_norm, ")
    assert line.endswith("; did you mean 'rms_norm'?")
    line = refused("mine:plain_rms", array="jax")
    assert line == "arrays of 'jax' for mine:plain_rms: expected one of auto, numpy, torch"
    line = refused("builtins:min", formula="rms_norm")
    assert line.startswith("builtins:min has no signature that Python can read: expected f(x, ")


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("rms_norm", "rms_norm"),
        ("LlamaRMSNorm", "rms_norm"),
        ("gemma_rms_norm", "gemma_rms_norm"),
        ("layernorm", "layer_norm"),
        ("my_ln", "layer_norm"),
        ("ln", "layer_norm"),
        ("GroupNorm", "group_norm"),
        ("vuln", None),
        ("norm", None),
    ],
)
def test_the_formula_is_guessed_from_the_name(name, formula):
    assert guess_formula(name) == formula


def test_a_given_formula_wins_over_the_name(folder):
    assert kernel_named("mine:plain_rms", formula="layer_norm").formula == "layer_norm"


def test_the_record_needs_no_import(folder):
    kernel = kernel_named("broken:rms")
    assert isinstance(kernel, Kernel)
    assert (kernel.name, kernel.package, kernel.version) == ("broken:rms", "broken", "")


TORCH_MODULE = """
from __future__ import annotations
import numpy as np
import torch
from torch import Tensor

def told_rms(x: Tensor, weight: torch.Tensor, eps: float):
    return x * type(x).__name__.count("Tensor")

def untold_rms(x, weight, eps):
    return x * weight

def numpy_rms(x: np.ndarray, weight: np.ndarray, eps: float):
    return x * 5
"""


@pytest.mark.parametrize(
    ("name", "option", "array"),
    [
        ("told_rms", "auto", "torch"),
        ("untold_rms", "auto", "torch"),
        ("numpy_rms", "auto", "numpy"),
        ("untold_rms", "numpy", "numpy"),
        ("numpy_rms", "torch", "torch"),
    ],
)
def test_annotations_then_imports_decide_on_torch(tmp_path, name, option, array):
    pytest.importorskip("torch")
    (tmp_path / "tensors.py").write_text(TORCH_MODULE)
    kernel = load(f"{tmp_path}/tensors.py:{name}", array=option)
    assert kernel.detail == {"array": array}
    assert (kernel.backward is not None) == (array == "torch")
    assert isinstance(kernel.forward(X, W, None, 0.5), np.ndarray)


def test_torch_callables_have_a_gradient(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "tensors.py").write_text(TORCH_MODULE)
    kernel = load(f"{tmp_path}/tensors.py:untold_rms")
    dx, dweight, dbias = kernel.backward(X, W, None, 0.5, np.ones_like(X))
    assert np.array_equal(dx[0], W)
    assert np.array_equal(dweight, X[0])
    assert dbias is None
