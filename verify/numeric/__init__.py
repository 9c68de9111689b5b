"""Formulas read as numbers: exact truth, contracts, error bounds, hard inputs."""

from verify.numeric.truth import reference as reference
