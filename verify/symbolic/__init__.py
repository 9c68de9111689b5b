"""Formulas read as algebra: proofs for every width d."""
