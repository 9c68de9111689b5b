"""Kernels written here: suspects like all others, written apart from the formulas and audited."""
