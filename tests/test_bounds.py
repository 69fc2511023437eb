"""Memory is bounded, constants stay retained, and the counts and audits tell the truth.

``SCALARINTERN_SLOW=1`` runs the tests of millions of values as well.
"""

from __future__ import annotations

import ctypes
import gc
import os
import struct
import tracemalloc
import warnings

import pytest
from pympler import asizeof

import scalarintern
from scalarintern import dsl_adapter
from scalarintern.registry import ScalarRegistry

slow = pytest.mark.skipif(
    os.environ.get("SCALARINTERN_SLOW", "0") in ("", "0"), reason="set SCALARINTERN_SLOW=1"
)


class Whole:
    """A scalar that holds an int, of 8 bytes."""

    def __init__(self, value):
        self.value = int(value)


def encode(cls, payload):
    """Encode an int in 8 bytes."""
    return struct.pack("<q", payload)


# -- contract 11: distinct values without end -----------------------------------

DISTINCT = """
import gc, os, sys
import psutil
import scalarintern
from cutlass.base_dsl.typing import Float16, Float32, Int64
scalarintern.install()
count = {count}
process = psutil.Process()

def stream(start, stop):
    for value in range(start, stop):
        Int64(value).__c_pointers__()
        Float32(value * 1e-6 + 1.0).__c_pointers__()
        Float16(value * 2.0**-30 + 1.0).__c_pointers__()
        Int64.intern(value).__c_pointers__()
        Float32.intern(value * 1e-6 + 1.0)

stream(0, 20_000)  # fills the retained tier
gc.collect()
gc.disable()
before = process.memory_info().rss
stream(10**6, 10**6 + count)
grown = process.memory_info().rss - before
stats = scalarintern.stats()
gc.set_debug(gc.DEBUG_SAVEALL)
gc.collect()
ours = [
    thing
    for thing in gc.garbage
    if "scalarintern" in type(thing).__module__
    or type(thing).__module__ in ("ctypes", "_ctypes", "cutlass.base_dsl.typing")
]
print(grown // 2**20, len(ours), stats.retained, stats.retained_pointers, stats.live)
"""


def check_distinct(run_program, count):
    """Stream ``count`` distinct values through three classes with the collector off."""
    done = run_program(DISTINCT.format(count=count))
    grown, garbage, retained, retained_pointers, live = map(int, done.stdout.split())

    assert grown <= 16, "MB that the process grew by"
    assert garbage == 0
    assert retained <= 4096
    assert retained_pointers <= 4096
    assert live <= 4096 + 8


class TestMemory:
    """Contract 11: memory is bounded for unbounded sets of values."""

    def test_distinct_values_by_the_ten_thousand(self, dsl, run_program):
        """Distinct values with the collector off cost 16 MB at most and leave no garbage."""
        check_distinct(run_program, 40_000)  # stock 4.6.1 grows by 122 MB

    @slow
    @pytest.mark.slow
    def test_five_million_distinct_values(self, dsl, run_program):
        """Five million values each way cost 16 MB at most and leave no garbage."""
        check_distinct(run_program, 1_000_000)  # through five calls each

    def test_a_retained_scalar_costs_a_kilobyte_at_most(self, dsl):
        """A retained scalar with its pointer costs 1 KB at most, tables and all."""
        for cls, step in ((dsl.Int64, 1), (dsl.Float32, 0.125)):
            scalarintern.clear()
            count = 3000
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            for value in range(1000, 1000 + count):
                cls.intern(value * step).__c_pointers__()
            cost = (tracemalloc.get_traced_memory()[0] - before) / count
            tracemalloc.stop()

            assert scalarintern.stats().retained == count
            assert cost <= 1024

    def test_scalars_that_were_held_and_dropped_give_their_memory_back(self):
        """What a program held and dropped leaves the tables, other classes' misses suffice."""
        registry = ScalarRegistry(encode, retain=16)
        other = type("Other", (Whole,), {})
        held = [registry.intern(Whole, value) for value in range(5000)]
        for scalar in held:
            registry.pointer(scalar)
        assert registry.stats().live == 5000
        del held, scalar
        for value in range(2000):
            registry.intern(other, value)
        table = registry.table(Whole)

        assert len(table.scalars.refs) <= 300
        assert len(table.pointers.refs) <= 300

    def test_no_cycle_on_a_hit_or_a_miss(self, dsl, collector_off):
        """Hits, misses, evictions and repairs leave the collector nothing."""
        for value in range(6000):
            dsl.Int32.intern(value)
            dsl.Int32(value % 10).__c_pointers__()
            dsl.Float16(value / 8).__c_pointers__()
            dsl.BFloat16.intern(value / 8)
        scalarintern.clear()
        scalarintern.audit()

        assert gc.collect() == 0

    def test_a_registry_that_is_dropped_is_collected(self):
        """A registry that nobody needs goes, with all that it retains."""
        registry = ScalarRegistry(encode)
        cls = type("Passing", (Whole,), {})
        scalar = registry.intern(cls, 1)
        registry.pointer(scalar)
        del registry, cls, scalar
        gc.collect()

        assert not [thing for thing in gc.get_objects() if type(thing).__name__ == "Passing"]


# -- contract 12: constants stay -------------------------------------------------


class TestConstants:
    """Contract 12: what is used every step outlives the one-off values between."""

    @pytest.mark.parametrize(
        "retain", [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 31, 63, 64, 65, 100, 1000, 4096]
    )
    @pytest.mark.parametrize("phase", [0, 1])
    def test_a_constant_never_misses_again(self, retain, phase):
        """A constant used once every retain/2 one-off values is made once."""
        registry = ScalarRegistry(encode, retain=retain)
        for value in range(phase * (retain // 3)):
            registry.pointer(registry.intern(Whole, -1 - value))
        registry.pointer(registry.intern(Whole, 10**9))
        before = registry.stats().misses
        one_offs = 0
        for _ in range(24):
            for _ in range(retain // 2):
                one_offs += 1
                registry.pointer(registry.intern(Whole, one_offs))
            registry.pointer(registry.intern(Whole, 10**9))

        assert registry.stats().misses - before == 2 * one_offs

    @pytest.mark.parametrize("retain", [8, 64, 1000, 4096])
    def test_a_constant_stays_however_the_one_offs_come(self, retain):
        """A constant survives one-off values in bursts of any length up to retain/2."""
        registry = ScalarRegistry(encode, retain=retain)
        registry.intern(Whole, 10**9)
        before = registry.stats().misses
        one_offs = 0
        for burst in range(60):
            for _ in range(burst * 7919 % (retain // 2 + 1)):
                one_offs += 1
                registry.intern(Whole, one_offs)
            registry.intern(Whole, 10**9)

        assert registry.stats().misses - before == one_offs

    @pytest.mark.parametrize("retain", [600, 1000, 4096])
    def test_a_hundred_constants_never_miss_again(self, retain):
        """A hundred constants, each used once every retain/2 one-offs, are made once each."""
        registry = ScalarRegistry(encode, retain=retain)
        constants = range(10**9, 10**9 + 100)
        for value in constants:
            registry.pointer(registry.intern(Whole, value))
        before = registry.stats().misses
        one_offs = 0
        for _ in range(20):
            for _ in range(retain // 2):
                one_offs += 1
                registry.pointer(registry.intern(Whole, one_offs))
            for value in constants:
                registry.pointer(registry.intern(Whole, value))

        assert registry.stats().misses - before == 2 * one_offs

    @pytest.mark.parametrize("retain", [2, 8, 64, 4096])
    def test_under_the_dsl(self, dsl, retain):
        """Constants marshalled every step hit while a step counter and a rate stream past."""
        scalarintern.configure(retain=retain)
        constants = [dsl.Int64(2**40), dsl.Float32(0.125), dsl.Boolean(True)][: max(1, retain // 8)]

        def use_constants():
            for scalar in constants:
                type(scalar)(scalar.value).__c_pointers__()
                type(scalar).intern(scalar.value)

        use_constants()
        before = scalarintern.stats().misses
        rounds, turns = 12, retain // 2 - len(constants) + 1
        for turn in range(rounds):
            for step in range(turn * turns, (turn + 1) * turns):
                if step % 2:
                    dsl.Int32.intern(step + 10**6).__c_pointers__()
                else:
                    dsl.Float32.intern(1.0 + step / 2**16).__c_pointers__()
            use_constants()

        assert scalarintern.stats().misses - before == 2 * rounds * turns

    def test_hits_alone_evict_nothing(self, dsl):
        """A working set within retain/2 stays for good, however often it is used."""
        scalarintern.configure(retain=64)
        for turn in range(96):
            dsl.Int32(turn * 7 % 32).__c_pointers__()
        before = scalarintern.stats().misses
        for turn in range(3000):
            dsl.Int32(turn * 7 % 32).__c_pointers__()

        assert scalarintern.stats().misses == before


# -- stats() and audit() ---------------------------------------------------------


class TestCounts:
    """What stats() says is so."""

    def test_calls_add_up(self, dsl):
        """Hits, misses and bypassed calls add up to the calls; live is what is alive."""
        scalarintern.configure(count_hits=True, retain=16)
        held = [dsl.Int32.intern(value) for value in range(5)]
        for value in range(100):
            dsl.Int32(value % 7).__c_pointers__()
            dsl.Float32.intern(value / 8)
            dsl.Float64.intern(0.0)
            dsl.Float32.intern(float("nan"))
        stats = scalarintern.stats()

        assert stats.hits + stats.misses + stats.bypassed == 5 + 400
        assert stats.bypassed == 0
        assert stats.misses >= 5 + 7 + 100 + 2
        assert held

    def test_live_is_within_what_the_weak_tables_hold(self, dsl):
        """No more is said to be live than the weak tables have references to."""
        scalarintern.configure(retain=32)
        held = [dsl.Int32.intern(value) for value in range(300)]
        for value in range(1000, 1300):
            dsl.Int32.intern(value)
        stats = scalarintern.stats(per_class=True)
        tables = dsl_adapter.registry.tables()

        assert stats.live <= sum(len(table.scalars.refs) for table in tables)
        assert stats.live >= len(held)
        assert stats.live == sum(row.live for row in stats.classes.values())
        assert stats.retained <= 32

    @pytest.mark.parametrize("count", [100, 1000, 3000])
    @pytest.mark.parametrize("name", ["Int64", "Float32"])
    def test_bytes_are_those_of_pympler(self, dsl, name, count):
        """The bytes of a class are within a tenth of what pympler measures.

        pympler makes the empty ``__dict__`` of each ctypes buffer by looking for it,
        and counts it; the buffers are measured without.
        """
        cls = getattr(dsl, name)
        table = dsl_adapter.registry.table(cls)
        held = [cls.intern(value / 8 + 1000) for value in range(0, 8 * count, 8)]
        for scalar in held[::2]:
            scalar.__c_pointers__()
        stores = (table.scalars, table.pointers)
        pointers = [pointer for _, pointer in table.pointers.live()]
        measured = asizeof.asizeof(
            *[scalar for _, scalar in table.scalars.live()],
            *[entry for store in stores for entry in store.refs.values()],
            *[d for s in stores for d in (s.refs, s.fast, s.zeros, s.odd, *s.older)],
        )
        buffers = [b for pointer in pointers for b in vars(pointer).values()]
        measured -= sum(asizeof.flatsize(vars(b)) for b in buffers if hasattr(b, "__dict__"))
        [row] = [
            row
            for key, row in scalarintern.stats(per_class=True).classes.items()
            if key.endswith(f".{name}")
        ]

        assert row.live >= count
        assert row.bytes == pytest.approx(measured, rel=0.1)

    def test_bytes_are_those_of_the_allocator(self, dsl):
        """What the bytes grow by is within a fifth of what CPython allocates."""
        scalarintern.clear()
        before = scalarintern.stats().bytes
        tracemalloc.start()
        allocated = tracemalloc.get_traced_memory()[0]
        for value in range(3000):
            dsl.Int64.intern(value + 10**6).__c_pointers__()
        allocated = tracemalloc.get_traced_memory()[0] - allocated
        tracemalloc.stop()

        assert scalarintern.stats().bytes - before == pytest.approx(allocated, rel=0.2)


class TestAudit:
    """audit() finds buffers that somebody wrote through their pointers."""

    CASES = (
        ("Int32", -5, "<i"),
        ("Uint8", 200, "<B"),
        ("Boolean", 1, "<B"),
        ("Float32", 0.125, "<f"),
        ("Float64", -0.0, "<d"),
        ("Float32", 1e300, None),
    )

    @pytest.mark.parametrize(("name", "value", "spelled"), CASES)
    def test_a_write_through_a_pointer_is_found_and_repaired(self, dsl, name, value, spelled):
        """The finding names class, value and both bytes, and repair puts them back."""
        cls = getattr(dsl, name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            [pointer] = cls(value).__c_pointers__()
        size = struct.calcsize(spelled or "<f")
        right = ctypes.string_at(pointer.value, size)
        assert spelled is None or right == struct.pack(spelled, value)
        assert scalarintern.audit() == []
        wrong = bytes(byte ^ 0xFF for byte in right)
        ctypes.memmove(pointer.value, wrong, size)

        [finding] = scalarintern.audit()
        assert finding.cls.endswith(name)
        assert struct.pack("<d", finding.value) == struct.pack("<d", value)
        assert (finding.expected, finding.found, finding.repaired) == (right, wrong, False)
        assert ctypes.string_at(pointer.value, size) == wrong

        [finding] = scalarintern.audit(repair=True)
        assert finding.repaired
        assert ctypes.string_at(pointer.value, size) == right
        assert scalarintern.audit() == []

    def test_a_pointer_only_somebody_else_holds_is_audited(self, dsl):
        """A pointer that left the retained tier is audited for as long as it lives."""
        [pointer] = dsl.Int32(1234).__c_pointers__()
        scalarintern.clear()
        ctypes.memmove(pointer.value, b"\0\0\0\0", 4)

        [finding] = scalarintern.audit(repair=True)
        assert finding.value == 1234
        assert ctypes.string_at(pointer.value, 4) == struct.pack("<i", 1234)

    PROGRAM = """
import ctypes, warnings
import scalarintern
from cutlass.base_dsl.typing import Int32
scalarintern.install()
[pointer] = Int32(64).__c_pointers__()
ctypes.memmove(pointer.value, b"\\1\\2\\3\\4", 4)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for value in range(1000, 1000 + {misses}):
        Int32(value).__c_pointers__()
print(len(caught), {{warning.category.__name__ for warning in caught}} or "")
print(*{{str(warning.message) for warning in caught}})
"""

    def test_the_environment_asks_for_audits(self, dsl, run_program):
        """SCALARINTERN_AUDIT=300 audits about every 300 misses and at exit, and warns."""
        done = run_program(self.PROGRAM.format(misses=3000), SCALARINTERN_AUDIT=300)

        count, kind = done.stdout.split("\n")[0].split(" ", 1)
        assert 4 <= int(count) <= 10
        assert kind == "{'RuntimeWarning'}"
        assert "Int32(64)" in done.stdout
        assert "01020304" in done.stdout
        assert done.stderr.count("RuntimeWarning") == 1
        assert "Int32(64)" in done.stderr

    @pytest.mark.parametrize(("setting", "said"), [("yes", 1), ("0", 0)])
    def test_the_environment_asks_for_an_audit_at_exit(self, dsl, run_program, setting, said):
        """A setting audits at exit and 0 does not."""
        done = run_program(self.PROGRAM.format(misses=5), SCALARINTERN_AUDIT=setting)

        assert done.stdout.split("\n")[0].strip() == "0"
        assert done.stderr.count("Int32(64)") == said

    @pytest.mark.parametrize("setting", ["", "1", "true", "-1", "1e6", "10000"])
    def test_no_setting_of_the_environment_breaks_the_import(self, run_program, setting):
        """Whatever SCALARINTERN_AUDIT is set to, importing the package says nothing."""
        done = run_program("import scalarintern", SCALARINTERN_AUDIT=setting)

        assert done.stdout + done.stderr == ""

    def test_an_audit_that_finds_nothing_says_nothing(self, dsl, run_program):
        """With nothing written, thousands of audited misses warn of nothing."""
        done = run_program(
            """
            import scalarintern
            from cutlass.base_dsl.typing import Float16, Int32
            scalarintern.install()
            for value in range(3000):
                Int32(value).__c_pointers__()
                Float16.intern(value / 8).__c_pointers__()
            """,
            SCALARINTERN_AUDIT=100,
        )

        assert done.stdout + done.stderr == ""
