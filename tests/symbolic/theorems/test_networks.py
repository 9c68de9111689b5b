"""The induction runs: whole networks, converted as the theorems say, agree to 100 digits.

The prover decides base, step and read-out one by one; here they are put together, on networks of
three blocks with weights of their own, in which tokens are mixed by what the tokens say.
"""

from dataclasses import dataclass, replace

import mpmath
import numpy as np
import pytest

from verify.norms.forward import crms_norm, layer_norm, narrow_rms_norm, rms_norm
from verify.numeric.mp import MpArithmetic
from verify.symbolic.theorem import theorem_named

D, HIDDEN, TOKENS, DEPTH = 5, 4, 3, 3
CONTEXT = mpmath.mp.clone()
CONTEXT.dps = 120
NUMBER = np.frompyfunc(CONTEXT.mpf, 1, 1)
TANH = np.frompyfunc(CONTEXT.tanh, 1, 1)
ONE, EPS = NUMBER(1), CONTEXT.mpf("1e-3")
P = NUMBER(np.eye(D)) - ONE / D
DROP_LAST = NUMBER(np.eye(D)[:-1])


def reflection():
    """Householder's, along 1 + sqrt(d) e_d; without its last column it is the chart Q."""
    v = NUMBER(np.ones(D))
    v[-1] += CONTEXT.sqrt(D)
    return NUMBER(np.eye(D)) - 2 * np.outer(v, v) / v.dot(v)


@dataclass(frozen=True)
class Network:
    norm: object
    x: np.ndarray
    writers: list  # (A, b) of each block
    readers: list  # (W, c) of each block, and of the head

    def output(self):
        x = self.x
        for (A, b), reader in zip(self.writers, self.readers[:-1], strict=True):
            x = x + sublayer(self.read(x, reader)) @ A.T + b
        return self.read(x, self.readers[-1])

    def read(self, x, reader):
        W, c = reader
        return self.norm(MpArithmetic(x.shape[1], CONTEXT), x, ONE, 0 * ONE, EPS) @ W.T + c


def sublayer(h):
    """Attention without a softmax, then an element-wise function: all tokens, not linear."""
    return TANH((h @ h.T) @ h / HIDDEN)


def pre_ln():
    rng = np.random.default_rng(5)

    def weights(*shape):
        return NUMBER(rng.integers(-8, 9, shape) + 2) / 8

    writers = [(weights(D, HIDDEN), weights(D)) for _ in range(DEPTH)]
    readers = [(weights(HIDDEN, D), weights(HIDDEN)) for _ in range(DEPTH + 1)]
    return Network(layer_norm, weights(TOKENS, D), writers, readers)


def with_writers_through(network, M):
    writers = [(M @ A, M @ b) for A, b in network.writers]
    return replace(network, x=network.x @ M.T, writers=writers)


def pre_rms(network):
    return replace(with_writers_through(network, P), norm=rms_norm)


def pre_crms(network):
    readers = [((W - W[:, -1:])[:, :-1], c) for W, c in network.readers]
    return replace(
        with_writers_through(pre_rms(network), DROP_LAST), norm=crms_norm, readers=readers
    )


def pre_narrow(network):
    Q = reflection()[:, :-1]
    readers = [(W @ Q, c) for W, c in network.readers]
    return replace(with_writers_through(network, Q.T), norm=narrow_rms_norm, readers=readers)


def error(network):
    return np.abs(network.output() - pre_ln().output()).max()


@pytest.mark.parametrize("convert", [pre_rms, pre_crms, pre_narrow])
def test_a_converted_network_is_the_same_function(convert):
    assert error(convert(pre_ln())) < CONTEXT.mpf("1e-100")


def test_any_mean_may_be_written():
    network = pre_ln()
    shifted = [(A + np.arange(HIDDEN), b + 3) for A, b in network.writers]
    assert error(replace(network, x=network.x - 7, writers=shifted)) < CONTEXT.mpf("1e-100")


@pytest.mark.parametrize("block", range(DEPTH))
def test_one_writer_that_is_not_centred_is_seen(block):
    network, converted = pre_ln(), pre_rms(pre_ln())
    writers = list(converted.writers)
    writers[block] = network.writers[block]
    assert error(replace(converted, writers=writers)) > CONTEXT.mpf("1e-3")


def test_an_input_that_is_not_centred_is_seen():
    assert error(replace(pre_rms(pre_ln()), x=pre_ln().x)) > CONTEXT.mpf("1e-3")


def test_a_reader_that_keeps_its_columns_is_seen():
    converted = pre_crms(pre_ln())
    readers = [(W[:, :-1], c) for W, c in pre_ln().readers]
    assert error(replace(converted, readers=readers)) > CONTEXT.mpf("1e-3")


@pytest.mark.parametrize(
    "name",
    [
        "PRE_LN_IS_PRE_RMS_NORM",
        "PRE_RMS_NORM_IS_PRE_CRMS_NORM",
        "PRE_LN_IS_NARROW_PRE_RMS_NORM",
        "PRE_RMS_NORM_IS_PRE_LN_FOR_ANY_MEANS",
    ],
)
def test_an_induction_has_a_base_a_step_and_a_read_out(name):
    assert {"base", "step", "read-out"} <= {claim.name for claim in theorem_named(name).claims}
