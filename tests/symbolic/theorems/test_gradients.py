"""Gradients and Jacobians: every output of every backward body is pinned, and numbers agree.

The prover differentiates the bodies symbol by symbol. Here the same closed forms are held against
central differences of the forward bodies in 120 digits, which know nothing of that derivative.
"""

import functools
import re
from dataclasses import replace

import mpmath
import numpy as np
import pytest

from verify.norms.backward import layer_norm_backward, rms_norm_backward
from verify.norms.catalogue import FORMULAS
from verify.norms.forward import layer_norm, rms_norm
from verify.numeric.mp import MpArithmetic
from verify.symbolic import theorem
from verify.symbolic.theorems import (
    contraction,
    double_backward,
    gradient_faults,
    gradients,
    jacobians,
    parameter_gradients,
)
from verify.symbolic.theorems.centring import centred
from verify.symbolic.trusted import rejections

MODULES = (
    jacobians,
    contraction,
    gradients,
    parameter_gradients,
    gradient_faults,
    double_backward,
)
OWN = {
    name: module.__name__
    for module in MODULES
    for name, body in vars(module).items()
    if name.isupper() and getattr(body, "__module__", "") == module.__name__
}
BACKWARD = {id: formula for id, formula in FORMULAS.items() if formula.differentiates}
SAME_BODY = {
    "qk_norm_backward": "rms_norm_backward",
    "instance_norm_backward": "group_norm_backward",
}


def stated(name):
    return theorem.theorem_named(name)


def rejected(name):
    made = stated(name)
    return [claim.name for claim in made.claims if rejections(claim, made.setting)]


@functools.cache
def uses():
    return {name: stated(name).used_in for name in OWN}


def about(id):
    """The theorems that say that a backward formula rests on them."""
    word = re.compile(rf"\b{id}\b")
    return [name for name, used_in in uses().items() if any(map(word.search, used_in))]


@pytest.mark.parametrize("name", OWN)
def test_the_prover_accepts(name):
    assert rejected(name) == []


@pytest.mark.parametrize("id", SAME_BODY)
def test_two_layouts_share_a_body(id):
    assert FORMULAS[id].body is FORMULAS[SAME_BODY[id]].body


@pytest.mark.parametrize(
    ("id", "output"),
    [(id, k) for id, f in BACKWARD.items() if id not in SAME_BODY for k in range(len(f.outputs))],
)
def test_each_output_of_a_backward_body_is_pinned(id, output, monkeypatch):
    """A body with one output 1% too large is no longer the adjoint: some claim is rejected."""
    right = FORMULAS[id]

    def wrong_body(ar, *arguments):
        outputs = list(right.body(ar, *arguments))
        outputs[output] = outputs[output] + outputs[output] / 100
        return tuple(outputs)

    wrong = {**FORMULAS, id: replace(right, body=wrong_body)}
    for module in (gradients, parameter_gradients):
        monkeypatch.setattr(module, "FORMULAS", wrong)
    assert any(rejected(name) for name in about(id))


@pytest.mark.parametrize("id", BACKWARD)
def test_each_backward_formula_has_a_theorem(id):
    assert about(id)


# --- numbers -------------------------------------------------------------------------------------

D = 5
CONTEXT = mpmath.mp.clone()
CONTEXT.dps = 120
NUMBER = np.frompyfunc(CONTEXT.mpf, 1, 1)
AR = MpArithmetic(D, CONTEXT)
EPS, WEIGHT, STEP = CONTEXT.mpf("1e-2"), NUMBER([[3, -1, 2, 5, 1]]), CONTEXT.mpf("1e-30")
X, G, V, H = NUMBER(np.random.default_rng(11).integers(-16, 17, (4, 1, D))) / 8
TRUNCATION = CONTEXT.mpf("1e-50")  # step^2 times a third derivative: r <= 10 keeps it below 1e10
NORMS = {"rms_norm": rms_norm, "layer_norm": layer_norm}
BACKWARDS = {"rms_norm": rms_norm_backward, "layer_norm": layer_norm_backward}


def difference(function, x, along):
    return (function(x + STEP * along) - function(x - STEP * along)) / (2 * STEP)


def apart(a, b):
    return np.abs(a - b).max()


def dx(name, x):
    return BACKWARDS[name](AR, x, WEIGHT, EPS, G)[0]


def closed_jacobian(name, h):
    jacobian = {"rms_norm": jacobians.rms_jacobian, "layer_norm": jacobians.layer_norm_jacobian}
    return jacobian[name](AR, X, EPS, h)


def closed_second(name, g, v):
    if name == "rms_norm":
        return double_backward.second(AR, X, EPS, g, v)
    rows = (centred(AR, row) for row in (X, g, v))
    x, g, v = rows
    return double_backward.second(AR, x, EPS, g, v)


@pytest.mark.parametrize("name", NORMS)
def test_the_jacobian_is_what_differences_say(name):
    def norm(x):
        return NORMS[name](AR, x, 1, 0, EPS)

    assert apart(difference(norm, X, H), closed_jacobian(name, H)) < TRUNCATION


@pytest.mark.parametrize("name", NORMS)
def test_dx_is_what_differences_say(name):
    def loss(x):
        return AR.sum(G * NORMS[name](AR, x, WEIGHT, 0, EPS))

    assert apart(difference(loss, X, H), AR.sum(dx(name, X) * H)) < TRUNCATION


@pytest.mark.parametrize("name", NORMS)
def test_double_backward_is_what_differences_say(name):
    ddx = closed_second(name, G * WEIGHT, V)
    by_differences = difference(lambda x: AR.sum(V * dx(name, x)), X, H)
    assert apart(by_differences, AR.sum(ddx * H)) < TRUNCATION


def test_differences_see_a_root_that_is_held_constant():
    held = double_backward._with_root_held(
        AR, X, jacobians.rms_rstd(AR, X, EPS), (G * WEIGHT, V, H)
    )
    by_differences = difference(lambda x: AR.sum(V * dx("rms_norm", x)), X, H)
    assert apart(by_differences, held) > CONTEXT.mpf("1e-3")


@pytest.mark.parametrize("name", NORMS)
def test_differences_see_a_jacobian_that_is_not_projected(name):
    rstd = jacobians.rms_rstd(AR, X if name == "rms_norm" else centred(AR, X), EPS)

    def norm(x):
        return NORMS[name](AR, x, 1, 0, EPS)

    assert apart(difference(norm, X, H), rstd * H) > CONTEXT.mpf("1e-3")


def test_the_second_derivative_does_not_mind_the_order_of_its_rows():
    g, v, h = (
        AR.sum(a * closed_second("rms_norm", b, c)) for a, b, c in ((G, V, H), (V, H, G), (H, G, V))
    )
    assert apart(g, v) < CONTEXT.mpf("1e-100")
    assert apart(v, h) < CONTEXT.mpf("1e-100")
