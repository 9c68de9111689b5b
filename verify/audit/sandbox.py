"""One kernel in a process of its own, with limits on time and memory.

Whatever a kernel does, raise, hang, crash, exit, print or take all memory, the caller gets a
`Reply` or a `Failure`, and the next call works. The caller's process never imports the kernel's
package.

    with Sandbox(kernel_named("torch.layer_norm")) as sandbox:
        reply = sandbox.forward({"x": x, "weight": w, "bias": b}, {"eps": 1e-5})
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

import numpy as np

from verify.audit.child_process import ChildProcess, Gone, Late
from verify.kernels import wire
from verify.kernels.kernel import NO_MEMORY, Kernel, KernelError
from verify.kernels.wire import Header

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True)
class Reply:
    """What a kernel gave.

    ``outputs``: (y,) of a forward call, (dx, dweight or None, dbias or None) of a backward one,
    C-contiguous copies. ``modified``: the inputs of which a byte changed, gaps between strided
    elements and the buffer around them included. ``seconds``: the kernel's own time.
    """

    outputs: tuple[np.ndarray | None, ...]
    modified: tuple[str, ...]
    seconds: float

    @property
    def y(self) -> np.ndarray:
        """The first output: y, or dx."""
        first = self.outputs[0]
        if first is None:
            raise KernelError("the kernel gave None as its first output: expected an array")
        return first


@dataclass(frozen=True)
class Failure:
    """Why there is no reply, in one line.

    ``kind``: "exception", "timeout", "crash" (``signal`` names it, if it was one), "memory" or
    "import" (whatever went wrong before the first call, a crash or a hang included).
    """

    kind: str
    message: str
    signal: str = ""


@dataclass(frozen=True)
class Loaded:
    """What is known of a kernel once it is imported. ``seconds``: how long that took."""

    has_backward: bool
    parameters: tuple[str, ...]
    seconds: float
    detail: Mapping[str, str] = field(default_factory=dict, hash=False)


class Sandbox:
    """Runs one kernel in a child process, started on the first call and again after a failure.

    ``memory_mb`` limits the address space that the kernel takes beyond what it has once imported,
    inputs included (where the system tells it: Linux). ``threads`` sets the kernel's threads
    (None: its own choice). ``start_timeout_s`` bounds the import.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        threads: int | None = None,
        memory_mb: int = 4096,
        start_timeout_s: float = 300.0,
    ) -> None:
        self.kernel = kernel
        self.threads = threads
        self.memory_mb = memory_mb
        self.start_timeout_s = start_timeout_s
        self._child: ChildProcess | None = None
        self._loaded: Loaded | Failure | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child, if there is one; a later call starts another."""
        if self._child is not None:
            self._child.end()
        self._child = None

    def load(self) -> Loaded | Failure:
        """Start the child and import the kernel. A failure stays: an import is not tried twice."""
        if isinstance(self._loaded, Failure) or (self._loaded and self._child):
            return self._loaded
        start = time.perf_counter()
        self._child = ChildProcess(_environment(self.threads))
        header = self._exchange(self._load_request(), [], self.start_timeout_s)
        if isinstance(header, Failure):
            self._loaded = replace(header, kind="import")
            self.close()
            return self._loaded
        self._loaded = self._loaded_from(header[0], time.perf_counter() - start)
        return self._loaded

    def call(
        self,
        method: str,
        arrays: Mapping[str, np.ndarray | None],
        numbers: Mapping[str, float],
        timeout_s: float | None = None,
    ) -> Reply | Failure:
        """Run ``method``, "forward" or "backward", once, in at most ``timeout_s`` seconds.

        ``arrays``: x, weight, bias and, backward, dy, in whatever layout; ``numbers``: eps and
        what the formula's layout asks for. Without ``timeout_s`` the kernel's own patience holds.
        Raises WireError for arrays that are not of numbers.
        """
        loaded = self.load()
        if isinstance(loaded, Failure):
            return loaded
        specs, parts = wire.pack_all(arrays)
        limit = self.kernel.patience_s if timeout_s is None else timeout_s
        request: Header = {"op": "call", "method": method, "arrays": specs}
        request["numbers"] = {name: wire.plain(value) for name, value in numbers.items()}
        answer = self._exchange(request, parts, limit)
        if isinstance(answer, Failure):
            return answer
        header, body = answer
        outputs = wire.results_of(header, body)
        return Reply(outputs, tuple(header["modified"]), float(header["seconds"]))

    def forward(
        self,
        arrays: Mapping[str, np.ndarray | None],
        numbers: Mapping[str, float],
        timeout_s: float | None = None,
    ) -> Reply | Failure:
        """`call` of "forward"."""
        return self.call("forward", arrays, numbers, timeout_s)

    def backward(
        self,
        arrays: Mapping[str, np.ndarray | None],
        numbers: Mapping[str, float],
        timeout_s: float | None = None,
    ) -> Reply | Failure:
        """`call` of "backward"."""
        return self.call("backward", arrays, numbers, timeout_s)

    def _load_request(self) -> Header:
        return {
            "op": "load",
            "adapter": self.kernel.adapter,
            "arguments": dict(self.kernel.arguments),
            "memory_mb": self.memory_mb,
        }

    def _loaded_from(self, header: Header, seconds: float) -> Loaded:
        named = header["parameters"]
        parameters = self.kernel.parameters if named is None else tuple(named)
        return Loaded(header["has_backward"], parameters, seconds, header["detail"])

    def _exchange(
        self, request: Header, parts: list[memoryview], limit_s: float
    ) -> tuple[Header, bytearray] | Failure:
        """One request and its reply; after a failure that may have hurt the child it is ended."""
        if self._child is None:
            raise RuntimeError("the sandbox has no child: expected load() before an exchange")
        try:
            pieces = wire.message({**request, "limit_s": limit_s}, parts)
            header, body = self._child.exchange(pieces, time.monotonic() + limit_s)
        except Late:
            self.close()
            return Failure("timeout", f"no result within {limit_s:g} s")
        except Gone:
            message, name = self._child.epitaph()
            self.close()
            return self._death(message, name, limit_s)
        if "failure" not in header:
            return header, body
        if header["failure"] == "memory":
            self.close()  # what was allocated may still be held
        return Failure(header["failure"], header["message"] + self._about(header["failure"]))

    def _death(self, message: str, name: str, limit_s: float) -> Failure:
        """The failure that a child's end amounts to."""
        if name == "SIGALRM":  # the child's own alarm, before we looked
            return Failure("timeout", f"no result within {limit_s:g} s")
        kind = "memory" if NO_MEMORY.search(message) else "crash"
        return Failure(kind, message + self._about(kind), name)

    def _about(self, kind: str) -> str:
        return f" (limit {self.memory_mb} MB)" if kind == "memory" else ""


def _environment(threads: int | None) -> dict[str, str]:
    """The child's environment: ours, and the number of threads."""
    chosen = {} if threads is None else dict.fromkeys(THREADS, str(threads))
    return {**os.environ, **chosen}


def resolve(kernel: Kernel) -> Kernel:
    """The kernel with what only its import can tell: has_backward and parameters.

    Meant for a user's callable, before an audit. Raises KernelError in one line if it does not
    import, is not callable or has another signature.
    """
    with Sandbox(kernel) as sandbox:
        loaded = sandbox.load()
    if isinstance(loaded, Failure):
        raise KernelError(loaded.message)
    return replace(kernel, has_backward=loaded.has_backward, parameters=loaded.parameters)
