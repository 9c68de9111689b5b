"""Arrays between two processes: a JSON header, then the bytes. No pickle, no code.

A message is the header's length (8 bytes, little-endian), the header, and one run of bytes for
each array that the header lists. An array is sent with what surrounds it in its buffer, up to
`MARGIN` bytes on either side, and is rebuilt with its own shape, strides and offset: a strided,
expanded or channels_last array reaches the other side as it is, and a write between its elements
can be seen there.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

MARGIN = 1 << 20  # bytes of the surrounding buffer that travel, on either side
GUARD = 4096  # bytes laid around a rebuilt buffer, so that a write past its ends is seen
FILL = 0xA5  # what guards hold
ALIGN = 64  # bytes: where torch and NumPy's callers expect a buffer to start
LENGTH = 8  # bytes of the header's length

Header = dict[str, Any]


class WireError(ValueError):
    """Bytes that are no message, or an array that cannot be sent."""


def dtype_named(name: str) -> np.dtype[Any]:
    """The dtype of that name, those of ml_dtypes included.

    >>> dtype_named("bfloat16").itemsize, dtype_named("float32").itemsize
    (2, 4)
    """
    return np.dtype(getattr(ml_dtypes, name, name))


def _root(array: np.ndarray) -> np.ndarray:
    """The array that owns the memory of a view, or the nearest to it."""
    root = array
    above: Any = array.base
    while above is not None:
        root = above if isinstance(above, np.ndarray) else root
        above = getattr(above, "base", None)
    return root


def byte_bounds(array: np.ndarray) -> tuple[int, int]:
    """Addresses of the first byte of an array and of the byte after its last."""
    start: int = array.__array_interface__["data"][0]
    if array.size == 0:
        return start, start
    steps = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    low = sum(min(0, step) for step in steps)
    high = sum(max(0, step) for step in steps)
    return start + low, start + high + array.itemsize


def _span(array: np.ndarray) -> tuple[int, int, int]:
    """Where to copy from and to (addresses), and where the root starts."""
    low, high = byte_bounds(array)
    first, last = byte_bounds(_root(array))
    if not first <= low <= high <= last:  # a root that is itself a window
        first, last = low, high
    return max(first, low - MARGIN), min(last, high + MARGIN), first


def pack(name: str, array: np.ndarray) -> tuple[Header, memoryview]:
    """The description of an array and its bytes (a view: keep the array alive)."""
    if array.dtype.hasobject or array.dtype.names:
        raise WireError(f"an array of dtype {array.dtype} cannot be sent: expected numbers")
    low, high, first = _span(array)
    raw = memoryview((ctypes.c_ubyte * (high - low)).from_address(low)) if high > low else b""
    spec = {
        "name": name,
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "strides": list(array.strides),
        "offset": array.__array_interface__["data"][0] - low,
        "phase": (low - first) % ALIGN,
        "nbytes": high - low,
    }
    return spec, memoryview(raw).cast("B")


@dataclass(frozen=True)
class Buffer:
    """Memory for one array: guard, surroundings, array, surroundings, guard."""

    spec: Header
    memory: np.ndarray
    start: int

    @property
    def payload(self) -> memoryview:
        """Where the array's bytes and their surroundings are to be written."""
        return self.memory.data[self.start : self.start + int(self.spec["nbytes"])]

    @property
    def array(self) -> np.ndarray:
        """The array, as it was sent: same shape, same strides, same place in its buffer."""
        return np.ndarray(
            shape=tuple(self.spec["shape"]),
            dtype=dtype_named(self.spec["dtype"]),
            buffer=self.memory.data,
            offset=self.start + int(self.spec["offset"]),
            strides=tuple(self.spec["strides"]),
        )


def buffer_for(spec: Header) -> Buffer:
    """Fresh memory for a described array, aligned as its root was taken to be: at 64 bytes."""
    size = 2 * GUARD + 2 * ALIGN + int(spec["nbytes"])
    memory = np.full(size, FILL, np.uint8)
    address: int = memory.__array_interface__["data"][0] + GUARD
    start = GUARD + (int(spec["phase"]) - address) % ALIGN
    return Buffer(spec, memory, start)


def empty_spec(name: str) -> Header:
    """What stands for an argument or a result that is None."""
    return {"name": name, "none": True, "nbytes": 0}


def pack_all(arrays: Mapping[str, np.ndarray | None]) -> tuple[list[Header], list[memoryview]]:
    """Descriptions and bytes of named arrays, in order; None is described and has no bytes."""
    specs, parts = [], []
    for name, array in arrays.items():
        if array is None:
            specs.append(empty_spec(name))
            continue
        spec, raw = pack(name, array)
        specs.append(spec)
        parts.append(raw)
    return specs, parts


def message(header: Header, parts: list[memoryview]) -> list[memoryview]:
    """A whole message, as pieces to be written one after the other."""
    text = json.dumps(header).encode()
    head = len(text).to_bytes(LENGTH, "little") + text
    return [memoryview(head), *(part for part in parts if part.nbytes)]


def pack_result(name: str, array: np.ndarray) -> tuple[Header, memoryview]:
    """As `pack`, for a result: its values in C order, and nothing of what surrounds them."""
    if array.dtype.hasobject or array.dtype.names:
        raise WireError(f"an array of dtype {array.dtype} cannot be sent: expected numbers")
    raw = np.asarray(array, order="C").reshape(-1).view(np.uint8).data
    spec = {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
    return {**spec, "nbytes": raw.nbytes}, raw


def results_of(header: Header, body: bytearray) -> tuple[np.ndarray | None, ...]:
    """The results of a call, copied out of the message's body; None where there is none."""
    found: list[np.ndarray | None] = []
    offset = 0
    for spec in header["outputs"]:
        dtype = None if spec.get("none") else dtype_named(spec["dtype"])
        shape = tuple(spec.get("shape", ()))
        found.append(None if dtype is None else np.ndarray(shape, dtype, body, offset).copy())
        offset += int(spec["nbytes"])
    return tuple(found)


def body_length(header: Header) -> int:
    """The number of bytes that follow the header of a reply."""
    return sum(int(spec["nbytes"]) for spec in header.get("outputs", ()))


def plain(number: float) -> float | int:
    """A Python number, of NumPy's as well: what JSON can carry."""
    return int(number) if isinstance(number, int | np.integer) else float(number)
