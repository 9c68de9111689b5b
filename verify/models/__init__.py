"""Whole transformers: where the mean goes, conversion, layer-by-layer truth."""
