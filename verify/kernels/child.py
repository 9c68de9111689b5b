"""The process that a kernel under audit runs in: one message in, one message out, until the end.

Its own standard output goes where its standard error goes: whatever a kernel prints, the replies
stay whole. It ends with the pipe that it reads from, so it does not outlive its parent; and should
it hang while the parent is gone, an alarm of the operating system ends it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np

from verify.kernels import wire
from verify.kernels.kernel import NO_MEMORY, Callables, KernelError
from verify.kernels.wire import Buffer, Header

GRACE_S = 2.0  # seconds that the parent has to end this process before the alarm does
LONGEST = 400  # characters of a message


@dataclass
class State:
    """What one request leaves for the next: the kernel, and the address space it may use."""

    kernel: Callables | None = None
    limit: int | None = None  # bytes
    buffers: list[Buffer] = field(default_factory=list)


# ------------------------------------------------------------------------------------------- pipes


def _take_pipes() -> tuple[FileIO, BinaryIO]:
    """Keep the pipes to the parent for ourselves, and leave the kernel harmless ones."""
    requests, replies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return os.fdopen(requests, "rb", buffering=0), os.fdopen(replies, "wb")


def _fill(pipe: FileIO, into: memoryview) -> None:
    """Read until ``into`` is full; the end of the pipe is the end of this process."""
    while into.nbytes:
        count = pipe.readinto(into)
        if not count:
            os._exit(0)
        into = into[count:]


def _read(pipe: FileIO) -> tuple[Header, list[Buffer]]:
    """One request: its header, and its arrays in memory of their own."""
    length = bytearray(wire.LENGTH)
    _fill(pipe, memoryview(length))
    text = bytearray(int.from_bytes(length, "little"))
    _fill(pipe, memoryview(text))
    header: Header = json.loads(text)
    buffers = [wire.buffer_for(spec) for spec in header.get("arrays", ()) if not spec.get("none")]
    for buffer in buffers:
        _fill(pipe, buffer.payload)
    return header, buffers


def _write(pipe: BinaryIO, header: Header, parts: list[memoryview]) -> None:
    pipe.writelines(wire.message(header, parts))
    pipe.flush()


# ------------------------------------------------------------------------------------------ limits


def _address_space() -> int | None:
    """Bytes of address space in use, or None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def _set_limit(limit: int | None) -> None:
    """Limit the address space to ``limit`` bytes; None lifts the limit as far as it was."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    soft = hard if limit is None else limit
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard) if soft != resource.RLIM_INFINITY else hard
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def _limits(state: State, seconds: float) -> Iterator[None]:
    """Memory and an alarm around one run of the kernel."""
    signal.setitimer(signal.ITIMER_REAL, seconds + GRACE_S)
    _set_limit(state.limit)
    try:
        yield
    finally:
        _set_limit(None)
        signal.setitimer(signal.ITIMER_REAL, 0)


# ---------------------------------------------------------------------------------------- requests


def _line(error: BaseException) -> str:
    """An exception in one line, with its type unless the message was written for a person."""
    text = " ".join(str(error).split())
    named = text if isinstance(error, KernelError) else f"{type(error).__name__}: {text}"
    return named.rstrip(": ")[:LONGEST]


def _kind(error: BaseException) -> str:
    lacks = isinstance(error, MemoryError) or NO_MEMORY.search(str(error))
    return "memory" if lacks else "exception"


def load(state: State, request: Header) -> Header:
    """Import the kernel, then fix how much address space it may use from here on."""
    module, _, name = request["adapter"].partition(":")
    with _limits(State(), request["limit_s"]):
        state.kernel = getattr(importlib.import_module(module), name)(**request["arguments"])
    used = _address_space()
    state.limit = None if used is None else used + int(request["memory_mb"]) * 2**20
    parameters = state.kernel.parameters
    return {
        "has_backward": state.kernel.backward is not None,
        "parameters": None if parameters is None else list(parameters),
        "detail": dict(state.kernel.detail),
    }


def _arguments(request: Header, buffers: list[Buffer]) -> dict[str, Any]:
    """What the kernel is called with; weight and bias are None unless given."""
    arrays = {buffer.spec["name"]: buffer.array for buffer in buffers}
    return {"weight": None, "bias": None, **arrays, **request["numbers"]}


def _method(kernel: Callables | None, name: str) -> Any:
    found = {"forward": kernel and kernel.forward, "backward": kernel and kernel.backward}
    if found.get(name) is None:
        there = ", ".join(each for each, value in found.items() if value is not None)
        raise KernelError(f"the kernel has no '{name}': expected one of {there}")
    return found[name]


def _named(result: Any) -> dict[str, np.ndarray | None]:
    """The outputs by name: one array, or a tuple with None for what is not there."""
    if not isinstance(result, tuple):
        return {"y": np.asarray(result)}
    names = ("dx", "dweight", "dbias")
    return {
        names[i] if i < len(names) else f"d{i}": None if value is None else np.asarray(value)
        for i, value in enumerate(result)
    }


def _pack_results(
    outputs: Mapping[str, np.ndarray | None],
) -> tuple[list[Header], list[memoryview]]:
    specs, parts = [], []
    for name, array in outputs.items():
        spec, raw = (
            (wire.empty_spec(name), memoryview(b""))
            if array is None
            else (wire.pack_result(name, array))
        )
        specs.append(spec)
        parts.append(raw)
    return specs, parts


def call(state: State, request: Header, buffers: list[Buffer]) -> tuple[Header, list[memoryview]]:
    """Run the kernel once; which inputs' memory changed is told by comparing every byte of it."""
    method = _method(state.kernel, request["method"])
    arguments = _arguments(request, buffers)
    before = [buffer.memory.tobytes() for buffer in buffers]
    with _limits(state, request["limit_s"]):
        start = time.perf_counter()
        result = method(**arguments)
        seconds = time.perf_counter() - start
    modified = [
        buffer.spec["name"]
        for buffer, old in zip(buffers, before, strict=True)
        if buffer.memory.tobytes() != old
    ]
    specs, parts = _pack_results(_named(result))
    return {"outputs": specs, "modified": modified, "seconds": seconds}, parts


def answer(state: State, request: Header, buffers: list[Buffer]) -> tuple[Header, list[memoryview]]:
    """The reply to a request; whatever the kernel raises becomes a failure in one line."""
    try:
        if request["op"] == "load":
            return load(state, request), []
        return call(state, request, buffers)
    except BaseException as error:  # noqa: BLE001 - SystemExit from a kernel is a finding too
        kind = "import" if request["op"] == "load" else _kind(error)
        return {"failure": kind, "message": _line(error)}, []


def main() -> NoReturn:
    """Answer requests until the parent closes the pipe."""
    requests, replies = _take_pipes()
    state = State()
    while True:
        _write(replies, *answer(state, *_read(requests)))
