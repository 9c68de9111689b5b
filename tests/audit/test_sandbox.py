"""Whatever a kernel does, the audit gets a reply or a failure, and the next call works."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from verify.audit.sandbox import Failure, Loaded, Reply, Sandbox, resolve
from verify.kernels.kernel import Kernel, KernelError
from verify.kernels.registry import kernel_named

ROOT = Path(__file__).parents[2]
EPS = {"eps": 1e-5}

# A kernel behaves as its weight's first element says; 0 is good behaviour.
PLANTED = """
import ctypes, os, signal, sys, threading, time
import numpy as np

def identity_rms(x, weight, eps):
    return x

def bad_rms(x, weight, eps):
    what = int(weight[0])
    if what == 1:
        raise ValueError("first line\\nsecond line")
    if what == 2:
        time.sleep(60)
    if what == 3:
        ctypes.string_at(0)
    if what == 4:
        os._exit(7)
    if what == 5:
        kept = []
        while True:
            kept.append(np.ones(2**22))
    if what == 6:
        print("{garbage}" * 5000)
        sys.stdout.flush()
        os.write(1, b"\\x05\\x00\\x00\\x00\\x00\\x00\\x00\\x00hello" * 5000)
        os.write(2, b"noise" * 50000)
    if what == 7:
        x[..., -1] += 1
    if what == 8:
        sys.exit("enough")
    if what == 9:
        os.write(2, b"free(): invalid pointer\\n")
        os.abort()
    if what == 10:
        os.closerange(0, 1000)
        time.sleep(60)
    if what == 11:
        kept = []
        while True:
            kept.append(bytes(1000))
    if what == 12:
        return np.array([object()])
    if what == 13:
        ctypes.memset(x.ctypes.data + x.nbytes, 1, 1)
    if what == 15:
        os.write(2, b"terminate called\\n  what():  std::bad_alloc\\n")
        os.abort()
    if what == 14:
        ctypes.pythonapi.PyEval_SaveThread = None
        libc = ctypes.PyDLL(None)
        libc.sleep(60)
    return x * 2

def gap_rms(x, weight, eps):
    y = x.copy()
    ctypes.memset(x.ctypes.data + x.itemsize, 1, 1)
    return y

def before_rms(x, weight, eps):
    ctypes.memset(x.ctypes.data - 1, 1, 1)
    return x.copy()

def shapes_rms(x, weight, eps):
    return np.array([*x.strides, x.ctypes.data % 64, int(x.flags.writeable)])

def echo_rms(x, weight, bias, eps):
    return np.array([eps, weight is None, bias is None])

def threads_rms(x, weight, eps):
    return np.array([int(os.environ["OMP_NUM_THREADS"])])

def pid_rms(x, weight, eps):
    return np.array([os.getpid()])

def linger_rms(x, weight, eps):
    if x[0, 0] > 1:
        time.sleep(60)
    return np.array([os.getpid()])

def spawn_rms(x, weight, eps):
    import subprocess
    child = subprocess.Popen(["sleep", "60"])
    if x[0, 0] > 1:
        time.sleep(60)
    return np.array([child.pid])
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    path = tmp_path_factory.mktemp("planted") / "planted.py"
    path.write_text(PLANTED)
    return lambda name: kernel_named(f"{path}:{name}", array="numpy")


@pytest.fixture(scope="module")
def bad(planted):
    with Sandbox(planted("bad_rms"), memory_mb=512) as sandbox:
        yield sandbox


def rows(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape).astype(dtype)


def behave(sandbox: Sandbox, what: int, timeout_s: float = 30.0) -> Reply | Failure:
    weight = np.array([what, 0, 0, 0], np.float32)
    return sandbox.forward({"x": rows(2, 4), "weight": weight}, EPS, timeout_s)


def assert_works(sandbox: Sandbox) -> None:
    reply = behave(sandbox, 0)
    assert isinstance(reply, Reply), reply
    assert np.array_equal(reply.y, 2 * rows(2, 4))
    assert reply.modified == ()


FAILURES = {
    "raises": (1, "exception", "ValueError: first line second line", ""),
    "hangs": (2, "timeout", "no result within 1 s", ""),
    "segfaults": (3, "crash", "the kernel crashed: SIGSEGV", "SIGSEGV"),
    "exits": (4, "crash", "the kernel ended its process with exit code 7", ""),
    "sys.exit": (8, "exception", "SystemExit: enough", ""),
    "aborts": (
        9,
        "crash",
        "the kernel crashed: SIGABRT; it last said: free(): invalid pointer",
        "SIGABRT",
    ),
    "allocates arrays": (5, "memory", "MemoryError", ""),
    "allocates objects": (11, "memory", "MemoryError", ""),
    "is refused memory in C++": (15, "memory", "what(): std::bad_alloc (limit 512 MB)", "SIGABRT"),
    "gives objects": (12, "exception", "an array of dtype object cannot be sent", ""),
    "holds the interpreter's lock": (14, "timeout", "no result within 1 s", ""),
}


@pytest.mark.parametrize(
    ("what", "kind", "message", "name"), FAILURES.values(), ids=FAILURES.keys()
)
def test_a_failure_is_named_and_the_next_call_works(bad, what, kind, message, name):
    failure = behave(bad, what, 1.0 if kind == "timeout" else 30.0)
    assert isinstance(failure, Failure), failure
    assert (failure.kind, failure.signal) == (kind, name)
    assert message in failure.message
    assert "\n" not in failure.message
    assert_works(bad)


def test_a_memory_failure_says_the_limit(bad):
    failure = behave(bad, 5)
    assert isinstance(failure, Failure)
    assert failure.message.endswith("(limit 512 MB)")


def test_a_kernel_that_closes_the_pipes_is_a_crash(bad):
    failure = behave(bad, 10)
    assert isinstance(failure, Failure)
    assert failure.kind == "crash"
    assert_works(bad)


def test_what_a_kernel_prints_does_not_reach_the_protocol(bad, capfd):
    reply = behave(bad, 6)
    assert isinstance(reply, Reply), reply
    assert np.array_equal(reply.y, 2 * rows(2, 4))
    assert_works(bad)
    assert capfd.readouterr() == ("", "")


def test_a_modified_input_is_named(bad):
    reply = behave(bad, 7)
    assert isinstance(reply, Reply)
    assert reply.modified == ("x",)
    assert_works(bad)


def test_a_write_past_the_end_of_an_input_is_seen(bad):
    reply = behave(bad, 13)
    assert isinstance(reply, Reply)
    assert reply.modified == ("x",)


def test_a_write_between_strided_elements_is_seen(planted):
    with Sandbox(planted("gap_rms")) as sandbox:
        x = rows(4, 8)[:, ::2]
        reply = sandbox.forward({"x": x, "weight": None}, EPS)
        assert isinstance(reply, Reply), reply
        assert np.array_equal(reply.y, x)
        assert reply.modified == ("x",)


@pytest.mark.parametrize("x", [rows(4, 4)[1:], rows(4, 4)], ids=["in the buffer", "before it"])
def test_a_write_before_the_first_element_is_seen(planted, x):
    with Sandbox(planted("before_rms")) as sandbox:
        reply = sandbox.forward({"x": x, "weight": None}, EPS)
        assert isinstance(reply, Reply), reply
        assert reply.modified == ("x",)


LAYOUTS = {
    "contiguous": (rows(3, 4), (16, 4), 0),
    "strided": (rows(3, 8)[:, ::2], (32, 8), 0),
    "rows apart": (rows(3, 8)[:, :4], (32, 4), 0),
    "offset": (rows(13)[1:].reshape(3, 4), (16, 4), 4),
    "expanded": (np.broadcast_to(rows(4), (3, 4)), (0, 4), 0),
    "transposed": (rows(4, 3).T, (4, 12), 0),
    "reversed": (rows(3, 4)[::-1], (-16, 4), 32),
    "far into a big buffer": (rows(1_000_003)[500_001:500_013].reshape(3, 4), (16, 4), 4),
    "read-only": (np.frombuffer(rows(3, 4).tobytes(), np.float32).reshape(3, 4), (16, 4), 0),
}


@pytest.fixture(scope="module")
def shapes(planted):
    with Sandbox(planted("shapes_rms")) as sandbox:
        yield sandbox


@pytest.mark.parametrize(("x", "strides", "start"), LAYOUTS.values(), ids=LAYOUTS.keys())
def test_a_layout_reaches_the_kernel_as_it_is(shapes, x, strides, start):
    reply = shapes.forward({"x": x, "weight": None}, EPS)
    assert isinstance(reply, Reply), reply
    assert list(reply.y) == [*strides, start, 1]


@pytest.fixture(scope="module")
def identity(planted):
    with Sandbox(planted("identity_rms")) as sandbox:
        yield sandbox


@pytest.mark.parametrize(("x", "strides", "start"), LAYOUTS.values(), ids=LAYOUTS.keys())
def test_values_come_back_bit_for_bit(identity, x, strides, start):
    reply = identity.forward({"x": x, "weight": None}, EPS)
    assert isinstance(reply, Reply), reply
    assert reply.y.flags.c_contiguous
    assert reply.y.tobytes() == np.ascontiguousarray(x).tobytes()


DTYPES = [
    np.float64,
    np.float16,
    np.int32,
    np.bool_,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float4_e2m1fn,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_every_format_travels(identity, dtype):
    x = rows(2, 3, dtype=dtype)
    reply = identity.forward({"x": x, "weight": None}, EPS)
    assert isinstance(reply, Reply), reply
    assert reply.y.dtype == x.dtype
    assert reply.y.tobytes() == x.tobytes()


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (), (1,), (2, 3, 4, 5)])
def test_every_shape_travels(identity, shape):
    x = np.ones(shape, np.float32)
    reply = identity.forward({"x": x, "weight": None}, EPS)
    assert isinstance(reply, Reply), reply
    assert reply.y.shape == shape


def test_ten_megabytes_travel(identity):
    x = rows(640, 4096)
    reply = identity.forward({"x": x, "weight": None}, EPS)
    assert isinstance(reply, Reply), reply
    assert np.array_equal(reply.y, x)


@pytest.fixture(scope="module")
def echo(planted):
    with Sandbox(planted("echo_rms")) as sandbox:
        yield sandbox


@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.1, 5e-324, float("inf"), np.float32(1e-6)])
def test_numbers_arrive_exactly(echo, eps):
    reply = echo.forward({"x": rows(1, 2), "weight": None}, {"eps": eps})
    assert isinstance(reply, Reply), reply
    assert list(reply.y) == [float(eps), 1, 1]


def test_the_number_of_threads_is_set(planted):
    with Sandbox(planted("threads_rms"), threads=3) as sandbox:
        assert sandbox.forward({"x": rows(1, 2), "weight": None}, EPS).y == 3


def test_a_method_that_is_not_there_is_a_failure(identity):
    failure = identity.backward({"x": rows(1, 2), "dy": rows(1, 2)}, EPS)
    assert isinstance(failure, Failure)
    assert failure.message == "the kernel has no 'backward': expected one of forward"


def gone(pid: int, wait_s: float = 10.0) -> bool:
    """Whether a process ends within a time; a zombie counts as ended."""
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.05)
                continue
        return True
    return False


def test_the_child_lives_from_call_to_call_and_no_longer_than_the_sandbox(planted):
    with Sandbox(planted("pid_rms")) as sandbox:
        first, second = (sandbox.forward({"x": rows(1, 2)}, EPS) for _ in range(2))
        assert isinstance(first, Reply)
        assert isinstance(second, Reply)
        assert first.y == second.y
    assert gone(int(first.y[0]))


def test_what_the_kernel_started_ends_with_it(planted):
    with Sandbox(planted("spawn_rms")) as sandbox:
        reply = sandbox.forward({"x": rows(1, 2)}, EPS)
        assert isinstance(reply, Reply), reply
        failure = sandbox.forward({"x": 2 * rows(1, 2)}, EPS, 1.0)
        assert isinstance(failure, Failure)
    assert gone(int(reply.y[0]))


PARENT = """
import os, sys, threading
import numpy as np
from verify.audit.sandbox import Sandbox
from verify.kernels.registry import kernel_named
sandbox = Sandbox(kernel_named(sys.argv[1], array="numpy"))
x = np.ones((1, 2), np.float32)
print(int(sandbox.forward({"x": x}, {"eps": 0.0}).y[0]), flush=True)
threading.Timer(0.2, os._exit, [0]).start()
if sys.argv[2] == "hanging":
    sandbox.forward({"x": 2 * x}, {"eps": 0.0}, 1.0)
"""


@pytest.mark.parametrize("state", ["idle", "hanging"])
def test_the_child_dies_with_its_parent(planted, state):
    command = [sys.executable, "-c", PARENT, planted("linger_rms").name, state]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert gone(int(done.stdout))


LIGHT = """
import sys
import numpy as np
from verify.audit.sandbox import Sandbox
from verify.kernels.registry import discover, kernel_named, skipped
discover(), skipped()
with Sandbox(kernel_named("torch.layer_norm")) as sandbox:
    y = sandbox.forward({"x": np.ones((1, 4), np.float32)}, {"eps": 1e-5}).y
assert not y.any(), y
heavy = {"torch", "numba", "mpmath", "sympy", "flint", "rich"} & set(sys.modules)
assert not heavy, heavy
"""


def test_the_parent_never_imports_torch():
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_an_import_that_fails_is_a_failure_of_every_call(tmp_path):
    (tmp_path / "broken.py").write_text("import os\nos._exit(3)\n")
    kernel = kernel_named(f"{tmp_path}/broken.py:rms")
    with Sandbox(kernel) as sandbox:
        failures = [sandbox.forward({"x": rows(1, 2)}, EPS) for _ in range(2)]
    assert failures[0] == failures[1]
    assert failures[0] == Failure("import", "the kernel ended its process with exit code 3")


def test_an_import_that_hangs_is_a_failure(tmp_path):
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(60)\n")
    with Sandbox(kernel_named(f"{tmp_path}/slow.py:rms"), start_timeout_s=1) as sandbox:
        assert sandbox.load() == Failure("import", "no result within 1 s")


def test_load_tells_what_only_the_import_knows(planted):
    with Sandbox(planted("identity_rms")) as sandbox:
        loaded = sandbox.load()
    assert isinstance(loaded, Loaded)
    assert (loaded.has_backward, loaded.parameters) == (False, ("weight",))
    assert loaded.detail == {"array": "numpy"}


def test_resolve_completes_the_record_or_raises_in_one_line(planted):
    kernel = resolve(planted("identity_rms"))
    assert (kernel.parameters, kernel.has_backward) == (("weight",), False)
    with pytest.raises(KernelError, match="has no 'nothing_rms': expected the name of a callable"):
        resolve(planted("nothing_rms"))


def test_a_file_of_the_current_directory_hides_nothing(tmp_path, monkeypatch):
    (tmp_path / "verify.py").write_text("raise SystemExit('hidden')\n")
    (tmp_path / "json.py").write_text("raise SystemExit('hidden')\n")
    monkeypatch.chdir(tmp_path)
    with Sandbox(kernel_named("numpy.rms_norm")) as sandbox:
        assert isinstance(sandbox.forward({"x": rows(1, 2)}, EPS), Reply)


def test_a_kernel_record_imports_nothing():
    kernel = Kernel(name="n", formula="rms_norm", adapter="nowhere:f", package="p")
    with Sandbox(kernel) as sandbox:
        failure = sandbox.load()
    assert failure == Failure("import", "ModuleNotFoundError: No module named 'nowhere'")
