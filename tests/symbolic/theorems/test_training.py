"""Training runs in numbers: which ways of training follow Pre-LN, and which leave it.

The prover speaks about one step, by algebra. Here whole runs are made in 60 digits, with gradients
by central differences of the loss, which know nothing of any backward pass.
"""

from functools import cache, partial

import mpmath
import numpy as np
import pytest

from verify.norms.forward import layer_norm, rms_norm
from verify.numeric.mp import MpArithmetic
from verify.symbolic.siblings import reason_if_true, siblings
from verify.symbolic.theorem import theorem_named
from verify.symbolic.theorems import optimisers, training
from verify.symbolic.trusted import rejections

OWN = [
    name
    for module in (training, optimisers)
    for name, made in vars(module).items()
    if name.isupper() and callable(made)
]

D, HIDDEN, TOKENS, STEPS = 4, 2, 3, 3
CONTEXT = mpmath.mp.clone()
CONTEXT.dps = 60
NUMBER = np.frompyfunc(CONTEXT.mpf, 1, 1)
ROOT, TANH = (np.frompyfunc(f, 1, 1) for f in (CONTEXT.sqrt, CONTEXT.tanh))
STEP, EPS = CONTEXT.mpf("1e-20"), CONTEXT.mpf("1e-2")
CLOSE, FAR = CONTEXT.mpf("1e-30"), CONTEXT.mpf("1e-6")

P = NUMBER(np.eye(D)) - NUMBER(1) / D
DROP = NUMBER(np.eye(D)[:-1])
DECOMPRESS = NUMBER(np.vstack([np.eye(D - 1), -np.ones((1, D - 1))]))
V = NUMBER(np.ones(D) + np.eye(D)[-1] * np.sqrt(D))
ISOMETRY = (NUMBER(np.eye(D)) - 2 * np.outer(V, V) / V.dot(V))[:, :-1]


@cache
def problem():
    """Stream x, activations a, the writer at the start, a reader and the targets."""
    rng = np.random.default_rng(11)
    shapes = (TOKENS, D), (TOKENS, HIDDEN), (D, HIDDEN), (D, 3), (TOKENS, 3)
    return [NUMBER(rng.integers(-9, 10, shape)) / 4 for shape in shapes]


def output(norm, x, writer):
    _, a, _, reader, _ = problem()
    ar = MpArithmetic(D, CONTEXT)
    return TANH(norm(ar, x + a @ writer.T, NUMBER(1), NUMBER(0), EPS) @ reader)


def pre_ln(writer):
    return output(layer_norm, problem()[0], writer)


def pre_rms(writer):
    return output(rms_norm, problem()[0] @ P, writer)


def gradient(network, weights):
    """By central differences of the squared loss."""

    def loss(weights):
        missed = network(weights) - problem()[-1]
        return (missed * missed).sum()

    slopes = np.empty_like(weights)
    for place in np.ndindex(weights.shape):
        near = 0 * weights
        near[place] = STEP
        slopes[place] = (loss(weights + near) - loss(weights - near)) / (2 * STEP)
    return slopes


# --- optimisers: (gradient, memory, weights) -> update, memory ------------------------------------


def sgd(g, memory, weights):
    memory = memory[0] * 3 / 4 + g, memory[1]
    return memory[0] / 32 + weights / 256, memory


def clipped(g, memory, weights):
    length = CONTEXT.sqrt((g * g).sum())
    return sgd(g * min(1, NUMBER(1) / 8 / length), memory, weights)


def adam(g, memory, weights):
    m, v = memory[0] / 2 + g / 2, memory[1] * 3 / 4 + g * g / 4
    return m / (ROOT(v) + EPS) / 32 + weights / 256, (m, v)


def lion(g, memory, weights):
    mixed = memory[0] / 2 + g / 2
    return np.sign(mixed.astype(float)) * NUMBER(1) / 32 + weights / 256, (mixed, memory[1])


def muon(g, memory, weights):
    """The polar factor M (M^T M)^(-1/2) of the memory, by the root of a 2 x 2 matrix."""
    m = memory[0] / 2 + g
    gram = m.T @ m
    area = CONTEXT.sqrt(gram[0, 0] * gram[1, 1] - gram[0, 1] * gram[1, 0])
    root = (gram + area * np.eye(2)) / CONTEXT.sqrt(gram[0, 0] + gram[1, 1] + 2 * area)
    inverse = np.array([[root[1, 1], -root[0, 1]], [-root[1, 0], root[0, 0]]]) / area
    return m @ inverse / 32 + weights / 256, (m, memory[1])


def run(network, weights, optimiser, *, project=(), recentre=False):
    """The output after some steps; ``project`` names what P is applied to."""
    memory = 0 * weights, 0 * weights
    for _ in range(STEPS):
        g = gradient(network, weights)
        g = P @ g if "gradient" in project else g
        update, memory = optimiser(g, memory, weights)
        update = P @ update if "update" in project else update
        weights = weights - update
        weights = P @ weights if recentre else weights
    return network(weights)


@cache
def reference(optimiser):
    return run(pre_ln, problem()[2], optimiser)


def distance(way, optimiser):
    return np.abs(way(optimiser) - reference(optimiser)).max()


def direct(**how):
    return lambda optimiser: run(pre_rms, P @ problem()[2], optimiser, **how)


def in_chart(lift, drop):
    def network(weights):
        return pre_rms(lift @ weights)

    return lambda optimiser: run(network, drop @ P @ problem()[2], optimiser)


LINEAR, ROTATING, ALL = {sgd}, {sgd, clipped, muon}, {sgd, clipped, adam, lion, muon}
WAYS = {
    "reparametrised": (lambda o: run(lambda w: pre_rms(P @ w), problem()[2], o), ALL),
    "direct": (direct(), set()),
    "direct, recentred": (direct(recentre=True), LINEAR),
    "direct, gradients projected": (direct(project=("gradient",)), ROTATING),
    "direct, gradients and updates projected": (direct(project=("gradient", "update")), ALL),
    "in the CRMSNorm chart": (in_chart(DECOMPRESS, DROP), set()),
    "in the isometric chart": (in_chart(ISOMETRY, ISOMETRY.T), ROTATING),
}


@pytest.mark.parametrize("optimiser", sorted(ALL, key=lambda f: f.__name__))
@pytest.mark.parametrize("way", WAYS)
def test_a_way_of_training_follows_pre_ln_or_does_not(way, optimiser):
    runs, follow = WAYS[way]
    if optimiser in follow:
        assert distance(runs, optimiser) < CLOSE
    else:
        assert distance(runs, optimiser) > FAR


def test_a_step_moves_the_output():
    assert np.abs(reference(sgd) - pre_ln(problem()[2])).max() > FAR


def test_decay_inside_the_gradient_sees_the_mean_of_the_weights():
    def coupled(g, memory, weights):
        return adam(g + weights, memory, 0 * weights)

    assert distance(direct(project=("gradient", "update")), coupled) > FAR
    assert distance(WAYS["reparametrised"][0], coupled) < CLOSE


def test_the_start_need_not_be_centred_for_pre_ln():
    assert np.abs(run(pre_ln, P @ problem()[2], adam) - reference(adam)).max() < CLOSE


# --- the theorems --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OWN)
def test_the_prover_accepts(name):
    made = theorem_named(name)
    assert made.claims
    assert [c.name for c in made.claims if rejections(c, made.setting)] == []


@pytest.mark.parametrize("name", OWN)
def test_a_wrong_sibling_is_rejected_or_explained(name):
    made = theorem_named(name)
    found = siblings(made, 6)
    assert len([s for s in found if s.rejected]) >= 5
    assert all(s.rejected or reason_if_true(s, made.setting) for s in found)


def test_an_update_that_leaves_the_mean_is_rejected(monkeypatch):
    """Plant the fault itself: no projection."""
    monkeypatch.setattr(training, "centred", partial(lambda ar, x: x))
    made = theorem_named("PRE_LN_GRADIENTS_ARE_PROJECTED")
    refused = [c.name for c in made.claims if rejections(c, made.setting)]
    assert "the gradient by the stream" in refused
    assert "what the projection takes away" in refused
