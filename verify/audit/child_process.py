"""A process for one kernel, seen from the side of the audit: its pipes, its last words, its end."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from verify.kernels import wire
from verify.kernels.wire import Header

ROOT = Path(wire.__file__).parents[2]

# The child finds the same `verify` as its parent, and nothing of the current directory hides it.
START = (
    "import sys; sys.path.insert(0, sys.argv[1]); import verify.kernels.child as child; "
    "sys.path.remove(sys.argv[1]); child.main()"
)
TICK_S = 0.25  # seconds between looks at whether the child is still there
TAIL = 4096  # bytes of the child's standard error that are kept
PIECE = 1 << 20  # bytes read or written at once
LONGEST_HEADER = 1 << 24  # bytes: more is no header of ours


class Gone(Exception):  # noqa: N818 - not an error: the child ended
    """The child closed its pipes, ended, or wrote what is no reply."""


class Late(Exception):  # noqa: N818 - not an error: the time is up
    """The time limit passed."""


class ChildProcess:
    """The process: its pipes, the last it wrote to standard error, and its end."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-P", "-c", START, str(ROOT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=environment,
            start_new_session=True,
        )
        self._stderr = b""
        for pipe in self._pipes():
            os.set_blocking(pipe.fileno(), False)
            _widen(pipe)

    def _pipes(self) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
        process = self._process
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise RuntimeError("a child without pipes")
        return process.stdin, process.stdout, process.stderr

    def exchange(self, message: list[memoryview], deadline: float) -> tuple[Header, bytearray]:
        """Write a message and read one; raises Gone or Late."""
        received = _Incoming()
        with selectors.DefaultSelector() as selector:
            stdin, stdout, stderr = self._pipes()
            selector.register(stdin, selectors.EVENT_WRITE)
            selector.register(stdout, selectors.EVENT_READ)
            selector.register(stderr, selectors.EVENT_READ)
            while not received.is_whole:
                ready = _wait(selector, deadline)
                if stdin in ready and not self._write(message):
                    selector.unregister(stdin)
                if stderr in ready and not self._drain():
                    selector.unregister(stderr)
                if stdout in ready:
                    received.take(stdout)
                if not ready and self._has_ended():
                    raise Gone
        return received.header, received.body

    def _write(self, message: list[memoryview]) -> bool:
        """Write what the pipe takes; whether there is more to write."""
        try:
            count = os.write(self._pipes()[0].fileno(), message[0][:PIECE])
        except BlockingIOError:
            return True
        except BrokenPipeError:
            raise Gone from None
        message[0] = message[0][count:]
        if not message[0].nbytes:
            message.pop(0)
        return bool(message)

    def _drain(self) -> bool:
        """Keep the tail of standard error; whether it may still say more."""
        try:
            said = os.read(self._pipes()[2].fileno(), PIECE)
        except BlockingIOError:
            return True
        self._stderr = (self._stderr + said)[-TAIL:]
        return bool(said)

    def _has_ended(self, wait_s: float = 0.0) -> bool:
        """Whether the process has ended, without reaping it: its number stays its own."""
        deadline = time.monotonic() + wait_s
        while True:
            state = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if state is not None or time.monotonic() >= deadline:
                return state is not None
            time.sleep(0.005)

    def epitaph(self) -> tuple[str, str]:
        """How a child that is gone came to its end: a sentence, and the name of a signal or ""."""
        ended = self._has_ended(wait_s=1.0)
        with contextlib.suppress(OSError):
            self._drain()
        self._kill()
        code = self._process.wait()
        if not ended:
            return "the kernel broke the pipe to its process" + self._last_words(), ""
        if code >= 0:
            return f"the kernel ended its process with exit code {code}{self._last_words()}", ""
        name = signal.Signals(-code).name
        return f"the kernel crashed: {name}{self._last_words()}", name

    def _last_words(self) -> str:
        """The last line of standard error, if there is one."""
        lines = self._stderr.decode(errors="replace").split("\n")
        said = [" ".join(line.split()) for line in lines if line.strip()]
        return f"; it last said: {said[-1][:200]}" if said else ""

    def _kill(self) -> None:
        """End the child's own session; before it is reaped, so that the number is still its own."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """End the process and close the pipes."""
        self._kill()
        self._process.wait()
        for pipe in self._pipes():
            with contextlib.suppress(OSError):
                pipe.close()


class _Incoming:
    """A message that arrives in pieces."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._got = 0
        self.header: Header = {}
        self.body = bytearray()

    @property
    def is_whole(self) -> bool:
        """Whether header and body are complete."""
        return bool(self.header) and self._got == len(self.body)

    def take(self, pipe: IO[bytes]) -> None:
        """Read what is there; raises Gone at the end of the pipe or for what is no message."""
        try:
            count = self._into_body(pipe) if self.header else self._into_head(pipe)
        except BlockingIOError:
            return
        if count == 0:
            raise Gone

    def _into_body(self, pipe: IO[bytes]) -> int:
        count = os.readv(pipe.fileno(), [memoryview(self.body)[self._got :]])
        self._got += count
        return count

    def _into_head(self, pipe: IO[bytes]) -> int:
        """Read no further than the header's end: what follows goes straight into the body."""
        length = int.from_bytes(self._head[: wire.LENGTH], "little")
        if length > LONGEST_HEADER:
            raise Gone
        whole = wire.LENGTH + (length if len(self._head) >= wire.LENGTH else 0)
        piece = os.read(pipe.fileno(), whole - len(self._head))
        self._head += piece
        if len(self._head) == whole > wire.LENGTH:
            self._parse()
        return len(piece)

    def _parse(self) -> None:
        try:
            self.header = json.loads(self._head[wire.LENGTH :])
            self.body = bytearray(wire.body_length(self.header))
        except (ValueError, TypeError, KeyError):
            raise Gone from None


def _widen(pipe: IO[bytes]) -> None:
    """Let a pipe hold more at once, where the system can: fewer turns for large arrays."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # the user's pipes together hold as much as they may
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, PIECE)


def _wait(selector: selectors.BaseSelector, deadline: float) -> set[object]:
    """The pipes that are ready, perhaps none after a tick; raises Late."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise Late
    return {key.fileobj for key, _ in selector.select(min(left, TICK_S))}
