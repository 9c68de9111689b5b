"""The four forms of one transformer: what each norm is, and which weights make it the same network.

Rows are written to the residual stream and read from it through a norm. The stream of a form
stands for zero-mean rows: `expand` gives the row that a row of the stream stands for, and
`write` is the linear map by which everything that Pre-LN writes is replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from verify.formula import Value
from verify.norms.forward import crms_norm, layer_norm, narrow_rms_norm, rms_norm
from verify.symbolic.network.field import FieldArithmetic, FieldArray, joined

RowMap: TypeAlias = Callable[[FieldArithmetic, FieldArray], FieldArray]


@dataclass(frozen=True)
class Form:
    """One way to run the network.

    ``norm`` is a body of `verify.norms.forward`. ``write`` maps rows of width d, (..., d), to rows
    of the form's stream, ``expand`` rows of its stream to the zero-mean rows of width d for which
    they stand. ``pull`` is the transpose of ``expand`` on the rows of a reader, (d, k) -> (., k);
    without it the norm keeps its gain and bias and the readers stay as they are, with it gain and
    bias are folded into the readers. ``needs_root`` says that sqrt(d) occurs in the weights.
    """

    name: str
    norm: Callable[..., Value]
    write: RowMap
    expand: RowMap
    pull: RowMap | None = None
    needs_root: bool = False


def as_it_is(_: FieldArithmetic, rows: FieldArray) -> FieldArray:
    """x."""
    return rows


def centred(ar: FieldArithmetic, rows: FieldArray) -> FieldArray:
    """P x = x - mean x."""
    return rows - ar.sum(rows) / ar.length(rows)


def dropped(ar: FieldArithmetic, rows: FieldArray) -> FieldArray:
    """The first d-1 elements of P x."""
    return centred(ar, rows)[..., :-1]


def decompressed(ar: FieldArithmetic, z: FieldArray) -> FieldArray:
    """D z = (z, -sum z)."""
    return joined(z, -ar.sum(z))


def decompressed_transposed(_: FieldArithmetic, matrix: FieldArray) -> FieldArray:
    """D^T W: the last row taken from all others."""
    return matrix[:-1] - matrix[-1:]


def _slopes(ar: FieldArithmetic, n: int) -> tuple[FieldArray, FieldArray]:
    """c = (1 - 1/sqrt(d)) / n and 1/sqrt(d), for d = n + 1."""
    inverse_root = ar.number(1) / ar.sqrt(ar.number(n + 1))
    return (1 - inverse_root) / n, inverse_root


def chart(ar: FieldArithmetic, z: FieldArray) -> FieldArray:
    """Q z = (z - c sum z, -sum z / sqrt(d)), z of length n = d - 1.

    Q is orthonormal with columns of sum 0: the Householder reflection that exchanges the last unit
    row with -1/sqrt(d), on the rows that end in 0.
    """
    slope, inverse_root = _slopes(ar, z.shape[-1])
    total = ar.sum(z)
    return joined(z - slope * total, -(total * inverse_root))


def chart_transposed(ar: FieldArithmetic, rows: FieldArray) -> FieldArray:
    """Q^T x for rows x of length d; Q^T P = Q^T, so that the mean is gone as well."""
    head, last = rows[..., :-1], rows[..., -1:]
    slope, inverse_root = _slopes(ar, head.shape[-1])
    return head - (slope * ar.sum(head) + last * inverse_root)


def chart_pulled(ar: FieldArithmetic, matrix: FieldArray) -> FieldArray:
    """Q^T W for a reader W, (d, k) -> (d-1, k)."""
    return chart_transposed(ar, matrix.T).T


PRE_LN = Form("Pre-LN", layer_norm, as_it_is, as_it_is)
PRE_RMS_NORM = Form("Pre-RMSNorm", rms_norm, centred, as_it_is)
PRE_CRMS_NORM = Form("Pre-CRMSNorm", crms_norm, dropped, decompressed, decompressed_transposed)
NARROW_RMS_NORM = Form(
    "narrow RMSNorm", narrow_rms_norm, chart_transposed, chart, chart_pulled, needs_root=True
)
CONVERTED = (PRE_RMS_NORM, PRE_CRMS_NORM, NARROW_RMS_NORM)
