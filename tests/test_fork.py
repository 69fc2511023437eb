"""Forks with threads in the registry, other processes, and the end of the interpreter."""

from __future__ import annotations

import os
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

#: What the programs below share. A child that hangs is ended by its alarm and fails.
PRELUDE = """
import ctypes, gc, os, signal, struct, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads running
import scalarintern
from scalarintern.registry import ScalarRegistry

def encode(cls, payload):
    return struct.pack("<q", payload)

class Whole:
    def __init__(self, value):
        self.value = int(value)

def in_child(work):
    '''Run work in a forked child; returns whether it ended well and in time.'''
    pid = os.fork()
    if not pid:
        code = 1
        try:
            signal.alarm(60)
            work()
            code = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

def string(pointer, size=8):
    return ctypes.string_at(pointer.value, size)
"""


class TestPlainRegistry:
    """A registry with no DSL about, in forked children."""

    def test_fork_while_threads_are_in_the_registry(self, run_program):
        """A child forked in the thick of it interns, keeps identity, retains and clears."""
        run_program(
            PRELUDE
            + """
registry = ScalarRegistry(encode, retain=8)
done = threading.Event()
held = [registry.intern(Whole, value) for value in range(5)]
pointers = [registry.pointer(scalar) for scalar in held]

def busy(start):
    value = start
    while not done.is_set():
        value += 1
        registry.pointer(registry.intern(Whole, value))
        registry.intern(type("Passing", (Whole,), {}), value)
        if value % 50 == 0:
            registry.clear()

def work():
    for value in range(5):
        assert registry.intern(Whole, value) is held[value]
        assert registry.pointer(Whole(value)) is pointers[value]
    first = registry.intern(type("New", (Whole,), {}), 1)
    assert registry.intern(type(first), 1) is first
    registry.clear()
    for value in range(-40, 0):
        registry.pointer(registry.intern(Whole, value))
    assert 0 < registry.stats().retained <= 8
    registry.configure(count_hits=True)
    registry.pointer(registry.intern(Whole, -1))
    assert registry.stats().hits == 2 and registry.stats().misses == 0
    assert registry.audit() == []
    threads = [threading.Thread(target=registry.intern, args=(Whole, 9)) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=busy, args=(n * 10**6,)) for n in range(1, 7)]
for thread in threads:
    thread.start()
try:
    assert all([in_child(work) for _ in range(40)])
finally:
    done.set()
    for thread in threads:
        thread.join()
"""
        )

    def test_fork_at_the_first_miss(self, run_program):
        """Parent and child whose encoder forks in the first miss both finish that miss."""
        run_program(
            PRELUDE
            + """
children = []

def forking(cls, payload):
    if not children:
        children.append(os.fork())
        if not children[0]:
            signal.alarm(60)
    return encode(cls, payload)

registry = ScalarRegistry(forking)
scalar = registry.intern(Whole, 5)
pointer = registry.pointer(scalar)
assert string(pointer) == encode(Whole, 5)
assert registry.intern(Whole, 5) is scalar
assert registry.pointer(Whole(5)) is pointer
assert registry.audit() == []
if not children[0]:
    os._exit(0)
assert os.waitpid(children[0], 0)[1] == 0
"""
        )

    def test_fork_in_a_finalizer_that_a_miss_runs(self, run_program):
        """A scalar's end that forks in the middle of an eviction leaves both sides well."""
        run_program(
            PRELUDE
            + """
parent = os.getpid()
pids = []

class Forking(Whole):
    def __del__(self):
        if os.getpid() == parent and len(pids) < 5:
            pids.append(os.fork())

registry = ScalarRegistry(encode, retain=4)
gc.set_threshold(1)
for value in range(200):
    garbage = Forking(value)
    garbage.itself = garbage
    del garbage
    scalar = registry.intern(Forking, value)
    assert registry.intern(Forking, value) is scalar
    assert string(registry.pointer(scalar)) == encode(Forking, value)
del scalar
assert registry.stats().retained == 4, registry.stats()
if os.getpid() != parent:
    os._exit(0)
assert len(pids) == 5
assert all(os.waitpid(pid, 0)[1] == 0 for pid in pids)
"""
        )


class TestUnderTheDsl:
    """The DSL's classes in forked children and other processes."""

    def test_fork_while_threads_intern_and_install(self, dsl, run_program):
        """A child forked while threads marshal, trace and install works and is installed."""
        run_program(
            PRELUDE
            + """
from cutlass.base_dsl.typing import Float32, Int32, ir
done = threading.Event()
held = Int32.intern(7)
[kept] = held.__c_pointers__()

def busy(start):
    value = start
    while not done.is_set():
        value += 1
        Int32(value).__c_pointers__()
        Float32.intern(value / 8)

def trace():
    while not done.is_set():
        with ir.Context():
            Int32.intern(1)

def install():
    while not done.is_set():
        scalarintern.install()
        scalarintern.is_installed()

def work():
    assert Int32.intern(7) is held
    assert Int32(7).__c_pointers__()[0] is kept
    assert scalarintern.is_installed()
    scalarintern.clear()
    scalarintern.configure(count_hits=False)
    before = scalarintern.stats().misses
    for _ in range(10):
        Int32(123456).__c_pointers__()
        Float32.intern(0.375)
    assert scalarintern.stats().misses == before + 2
    assert scalarintern.intern(Int32, 7) is held
    assert scalarintern.audit() == []
    assert scalarintern.uninstall() == []
    assert string(kept, 4) == b"\\x07\\0\\0\\0"
    scalarintern.install()
    assert scalarintern.is_installed()

sys.setswitchinterval(1e-6)
targets = [(busy, (n * 10**6,)) for n in range(1, 5)] + [(trace, ()), (install, ())]
threads = [threading.Thread(target=target, args=args) for target, args in targets]
for thread in threads:
    thread.start()
try:
    assert all([in_child(work) for _ in range(15)])
finally:
    done.set()
    for thread in threads:
        thread.join()

# And what the first process of a fork server does: fork before the first miss.
from cutlass.base_dsl.typing import Int64
def first():
    [pointer] = Int64(2**40).__c_pointers__()
    assert string(pointer) == struct.pack("<q", 2**40)
assert in_child(first)
first()
"""
        )

    @pytest.mark.parametrize("method", ["spawn", "forkserver"])
    def test_multiprocessing(self, dsl, run_program, tmp_path, method):
        """Scalars pickled to workers of either start method intern there; results come back."""
        worker = tmp_path / "worker_of_the_test.py"
        worker.write_text(
            """
import ctypes
import scalarintern

def work(scalar):
    from cutlass.base_dsl.typing import Int32
    shared = Int32.intern(scalar)
    assert shared is Int32.intern(scalar.value)
    assert scalarintern.is_installed()
    [pointer] = shared.__c_pointers__()
    return shared, ctypes.string_at(pointer.value, 4), scalarintern.stats().misses
"""
        )
        main = tmp_path / "main_of_the_test.py"
        main.write_text(
            f"""
import multiprocessing, sys
sys.path.insert(0, {str(tmp_path)!r})
import worker_of_the_test

if __name__ == "__main__":
    import scalarintern
    from cutlass.base_dsl.typing import Int32
    context = multiprocessing.get_context({method!r})
    if {method!r} == "forkserver":
        context.set_forkserver_preload(["worker_of_the_test", "cutlass.base_dsl.typing"])
    with context.Pool(1) as pool:
        for scalar, found, misses in pool.map(worker_of_the_test.work, [Int32.intern(64)] * 2):
            assert type(scalar) is Int32 and scalar.value == 64
            assert found == b"@\\0\\0\\0" and misses == 2
            assert Int32.intern(scalar) is Int32.intern(64)
    print("well")
"""
        )
        done = run_program(f"import runpy; runpy.run_path({str(main)!r}, run_name='__main__')")

        assert done.stdout.split() == ["well"]


SHUTDOWN = (
    PRELUDE
    + """
from cutlass.base_dsl.typing import Boolean, Float32, Int32
import atexit, weakref

class Held:
    '''Ends with the interpreter, and then uses what is left of it.'''
    def __init__(self):
        self.scalars = [Int32.intern(value) for value in range(50)]
        self.pointers = [scalar.__c_pointers__() for scalar in self.scalars]
        self.itself = self
    def __del__(self, Int32=Int32, clear=scalarintern.clear):
        scalar = Int32.intern(10**6)
        scalar.__c_pointers__()
        clear()

def plain():
    global held, pointers
    held = [Float32.intern(value / 8) for value in range(100)]
    pointers = [scalar.__c_pointers__() for scalar in held]

def cyclic():
    global held
    held = Held()

def finalizers():
    global held
    held = [Int32.intern(value) for value in range(20)]
    for scalar in held:
        weakref.finalize(scalar, lambda: Int32(5).__c_pointers__())
    weakref.ref(held[0], lambda _: scalarintern.clear())
    atexit.register(lambda: Int32.intern(77).__c_pointers__())

def threads():
    def busy(start):
        value = start
        while True:
            value += 1
            Int32(value).__c_pointers__()
            Float32.intern(value / 8)
    for n in range(4):
        threading.Thread(target=busy, args=(n * 10**6,), daemon=True).start()
    import time
    time.sleep(0.05)

def thread_local():
    global local
    local = threading.local()
    def use():
        local.held = [Int32.intern(value).__c_pointers__() for value in range(9)]
    thread = threading.Thread(target=use)
    thread.start()

def uninstalled():
    global held
    held = [Int32.intern(3), Int32(4).__c_pointers__()]
    scalarintern.uninstall()

def frozen():
    global held
    held = [Boolean.intern(True).__c_pointers__()]
    gc.freeze()
    gc.disable()

for scenario in (plain, cyclic, finalizers, threads, thread_local, uninstalled, frozen):
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.dup2(write, 1)
        os.dup2(write, 2)
        os.close(read)
        signal.alarm(60)
        scenario()
        sys.exit(0)  # the ordinary end of an interpreter
    os.close(write)
    with open(read, errors="replace") as output:
        said = output.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code or said:
        print(f"{scenario.__name__}: exit code {code}, said {said[:2000]!r}")
print("done")
"""
)


def test_the_end_of_the_interpreter_is_silent(dsl, run_program):
    """Under -X dev, with scalars and pointers alive and threads at work, no message is said."""
    done = run_program(SHUTDOWN, options=("-X", "dev", "-W", "ignore::DeprecationWarning"))

    assert done.stdout.split("\n") == ["done", ""]


SUBINTERPRETER = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
program = '''
import sys
sys.path[:] = {path!r}
import struct
from scalarintern.registry import ScalarRegistry
class Whole:
    def __init__(self, value):
        self.value = int(value)
registry = ScalarRegistry(lambda cls, payload: struct.pack("<q", payload))
scalar = registry.intern(Whole, 5)
assert registry.intern(Whole, 5) is scalar
assert registry.pointer(scalar) is registry.pointer(Whole(5))
'''.format(path=sys.path)
import scalarintern.registry
number = interpreters.create({arguments})
try:
    failed = interpreters.run_string(number, program)
except Exception as error:
    failed = error
interpreters.destroy(number)
print(str(failed).replace("\\n", " "))
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sub-interpreters are too young here")
@pytest.mark.parametrize("isolated", [False, True])
def test_a_sub_interpreter_works_or_refuses(run_program, isolated):
    """In a sub-interpreter the registry works, or its import is refused in so many words."""
    if sys.version_info >= (3, 13):
        arguments = "'isolated'" if isolated else "'legacy'"
    else:
        arguments = f"isolated={isolated}"
    done = run_program(SUBINTERPRETER.replace("{arguments}", arguments))

    said = done.stdout.strip()
    assert said == "None" or "does not support loading in subinterpreters" in said
    assert said == "None" or isolated


def test_the_alarm_of_the_programs_ends_a_child_that_hangs(run_program):
    """A child that waits for ever is noticed, so the tests above can fail."""
    program = PRELUDE.replace("alarm(60)", "alarm(1)")
    done = run_program(program + "print(in_child(signal.pause))")

    assert done.stdout.strip() == "False"
