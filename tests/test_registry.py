"""ScalarRegistry by itself: no DSL is needed or loaded."""

from __future__ import annotations

import ctypes
import gc
import math
import struct
import subprocess
import sys
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalarintern
from scalarintern.registry import ScalarRegistry, key_of, payload_of


class Number:
    """A scalar class with nothing special about it."""

    def __init__(self, value: Any) -> None:
        """Hold the value as it is."""
        self.value = value


class Other(Number):
    """Another class, to share nothing with the first."""


def encode(_cls: type, payload: Any) -> bytes:
    """Encode any payload in 8 bytes."""
    return struct.pack("<d" if isinstance(payload, float) else "<q", payload)


@pytest.fixture
def registry() -> ScalarRegistry:
    """Give an empty registry."""
    return ScalarRegistry(encode)


def bits(payload: float) -> bytes:
    """Give the bytes of a double."""
    return struct.pack("<d", payload)


doubles = st.binary(min_size=8, max_size=8).map(lambda raw: struct.unpack("<d", raw)[0])
payloads = st.one_of(st.integers(-(2**63), 2**63 - 1), st.booleans(), doubles)


class TestKeys:
    """What makes two payloads one."""

    @given(payloads, payloads, st.sampled_from([None, int, float]))
    def test_keys_are_equal_where_type_and_bits_are(self, a: Any, b: Any, kind: Any) -> None:
        """Two payloads have one key if, and only if, they are the same type and bits."""

        def same(x: Any, y: Any) -> bool:
            return type(x) is type(y) and (bits(x) == bits(y) if isinstance(x, float) else x == y)

        key_a, key_b = key_of(a, kind), key_of(b, kind)

        assert same(a, b) == (type(key_a) is type(key_b) and key_a == key_b)

    @given(payloads, st.sampled_from([None, int, float]))
    def test_a_key_gives_its_payload_back(self, payload: Any, kind: Any) -> None:
        """payload_of undoes key_of, to the bit and the type."""
        key = key_of(payload, kind)
        assert key is not None

        back = payload_of(key)

        assert type(back) is type(payload)
        assert key_of(back, kind) == key

    def test_what_is_no_plain_number_has_no_key(self) -> None:
        """None, text, complex and subclasses of numbers are not interned."""

        class Special(int):
            pass

        assert [key_of(x) for x in (None, "1", 1j, Special(1), [1])] == [None] * 5


class TestIdentity:
    """Contract 1, 2 and 4."""

    @given(payloads)
    def test_equal_values_share_one_object(self, value: Any) -> None:
        """While one is alive, an equal value gives that very object."""
        registry = ScalarRegistry(encode)
        first = registry.intern(Number, value)

        assert registry.intern(Number, value) is first
        assert type(first) is Number

    def test_zeros_and_nans_stay_apart(self, registry: ScalarRegistry) -> None:
        """Both zeros differ; a NaN is the object of its own payload and sign."""
        quiet, other = float("nan"), struct.unpack("<d", b"\x01" + b"\0" * 5 + b"\xf8\x7f")[0]

        zero, minus = registry.intern(Number, 0.0), registry.intern(Number, -0.0)
        nan = registry.intern(Number, quiet)

        assert zero is not minus
        assert math.copysign(1, minus.value) == -1
        assert registry.intern(Number, math.nan * 1) is nan
        assert registry.intern(Number, other) is not nan
        assert registry.intern(Number, -quiet) is not nan

    def test_nans_do_not_accumulate(self, registry: ScalarRegistry) -> None:
        """A thousand NaN objects of one payload are one scalar."""
        for _ in range(1000):
            registry.intern(Number, struct.unpack("<d", b"\0" * 6 + b"\xf8\x7f")[0])

        assert registry.stats().live == 1

    def test_classes_and_types_share_nothing(self, registry: ScalarRegistry) -> None:
        """Equal numbers of other classes or types are other scalars."""
        found = [registry.intern(cls, value) for cls in (Number, Other) for value in (1, 1.0, True)]

        assert len({id(scalar) for scalar in found}) == 6
        assert [type(scalar.value) for scalar in found] == [int, float, bool] * 2

    def test_writing_a_value_hurts_no_later_caller(self, registry: ScalarRegistry) -> None:
        """After .value was written, the next intern returns another object, with the value."""
        spoiled = registry.intern(Number, 64)
        spoiled.value = 65

        fresh = registry.intern(Number, 64)

        assert fresh is not spoiled
        assert fresh.value == 64
        assert registry.intern(Number, 64) is fresh
        assert ctypes.c_int64.from_address(registry.pointer(fresh).value).value == 64
        assert ctypes.c_int64.from_address(registry.pointer(spoiled).value).value == 65

    def test_a_deleted_value_hurts_no_later_caller(self, registry: ScalarRegistry) -> None:
        """A canonical scalar that lost its value is replaced."""
        spoiled = registry.intern(Number, 64)
        del spoiled.value

        assert registry.intern(Number, 64).value == 64


class TestPointers:
    """Contract 7, 9 and 10."""

    def test_one_pointer_for_equal_values(self, registry: ScalarRegistry) -> None:
        """Any scalar of a value, interned or not, has the one pointer."""
        pointer = registry.pointer(registry.intern(Number, 7))

        assert registry.pointer(Number(7)) is pointer
        assert type(pointer) is ctypes.c_void_p
        assert ctypes.string_at(pointer.value, 8) == struct.pack("<q", 7)

    def test_a_pointer_owns_its_bytes(self, registry: ScalarRegistry) -> None:
        """Pointers outlive scalar, eviction and clear(); no address is used twice."""
        kept = [registry.pointer(registry.intern(Number, n)) for n in range(6000)]
        registry.clear()
        for n in range(6000, 12000):
            registry.pointer(registry.intern(Number, n))

        assert len({pointer.value for pointer in kept}) == 6000
        for n, pointer in enumerate(kept):
            assert ctypes.string_at(pointer.value, 8) == struct.pack("<q", n)

    def test_a_live_scalar_keeps_one_buffer(self, registry: ScalarRegistry) -> None:
        """Whatever is evicted, a scalar that somebody holds keeps its pointer."""
        scalar = registry.intern(Number, -1)
        address = registry.pointer(scalar).value
        for n in range(10000):
            registry.pointer(registry.intern(Number, n))
        registry.clear()

        assert registry.pointer(scalar).value == address

    def test_the_order_of_scalar_and_pointer_does_not_matter(
        self, registry: ScalarRegistry
    ) -> None:
        """A pointer made before its scalar is kept by it all the same."""
        pointer = registry.pointer(registry.intern(Number, 0)) and registry.pointer(Number(-5))
        scalar = registry.intern(Number, -5)
        address = pointer.value
        del pointer
        registry.clear()

        assert registry.pointer(scalar).value == address

    def test_nothing_is_left_for_the_collector(
        self, registry: ScalarRegistry, collector_off: None
    ) -> None:
        """Hits, misses and evictions make no reference cycle."""
        for n in range(10000):
            registry.pointer(registry.intern(Number, n))
            registry.pointer(registry.intern(Number, 5))

        assert gc.collect() == 0


class TestBound:
    """Contract 5, 11 and 12."""

    @pytest.mark.parametrize("retain", [0, 1, 2, 3, 4, 7, 100, 4096])
    def test_the_tier_holds_no_more_than_asked_for(self, retain: int) -> None:
        """However many values pass, at most `retain` scalars and pointers are held."""
        registry = ScalarRegistry(encode, retain=retain)
        for n in range(3 * retain + 50):
            registry.pointer(registry.intern(Number, n))
            stats = registry.stats() if n % 50 == 0 else None
            assert stats is None or max(stats.retained, stats.retained_pointers) <= retain

        stats = registry.stats()
        assert stats.live == stats.retained <= retain
        assert stats.pointers == stats.retained_pointers <= retain
        assert stats.retained > retain // 2 or retain < 2

    @pytest.mark.parametrize("retain", [2, 4, 8, 100, 4096])
    def test_a_constant_stays(self, retain: int) -> None:
        """Used once every retain/2 one-off values, a constant misses but once."""
        registry = ScalarRegistry(encode, retain=retain)
        one_offs = iter(range(10**9))
        for _ in range(20):
            before = registry.stats().misses
            registry.pointer(registry.intern(Number, -1))
            missed = registry.stats().misses - before
            for _ in range(retain // 2):
                registry.pointer(registry.intern(Number, next(one_offs)))

        assert missed == 0

    def test_no_class_is_kept_alive(self, registry: ScalarRegistry) -> None:
        """A class made, used and dropped is collected, scalars, pointers and all."""
        classes = []
        for _ in range(5):
            cls = type("Made", (Number,), {})
            registry.pointer(registry.intern(cls, 1))
            classes.append(weakref.ref(cls))
        del cls
        gc.collect()

        assert [reference() for reference in classes] == [None] * 5
        assert registry.stats().live == 0


class TestSettings:
    """configure, clear, stats and misuse."""

    @pytest.mark.parametrize("retain", [-1, "x", 1.5, True, None])
    def test_a_wrong_bound_is_refused(self, retain: Any) -> None:
        """A bound that is no count is refused with a sentence."""
        with pytest.raises(scalarintern.ConfigurationError, match="pass an int of 0 or more"):
            ScalarRegistry(retain=retain)

    def test_a_wrong_setting_changes_nothing(self, registry: ScalarRegistry) -> None:
        """configure checks all before it changes any."""
        scalar = registry.intern(Number, 1)

        with pytest.raises(scalarintern.ConfigurationError):
            registry.configure(retain=5, count_hits="yes")  # type: ignore[arg-type]
        with pytest.raises(scalarintern.ConfigurationError):
            registry.configure(retain=-1, count_hits=True)

        assert registry.stats().retain == 4096
        assert registry.stats().hits is None
        assert registry.intern(Number, 1) is scalar

    def test_hits_and_misses_are_all_calls(self, registry: ScalarRegistry) -> None:
        """With hits counted, hits and misses add up to the calls."""
        registry.configure(count_hits=True)
        for n in range(300):
            registry.pointer(registry.intern(Number, n % 7))

        stats = registry.stats()

        assert stats.hits is not None
        assert (stats.misses, stats.hits) == (14, 600 - 14)
        assert registry.stats() == stats

    def test_clear_keeps_what_others_hold(self, registry: ScalarRegistry) -> None:
        """clear() empties the tier; a scalar in use stays canonical."""
        held = registry.intern(Number, 1)
        registry.intern(Number, 2)
        registry.clear()

        stats = registry.stats()

        assert (stats.retained, stats.live) == (0, 1)
        assert registry.intern(Number, 1) is held

    def test_what_an_encoder_may_return(self) -> None:
        """Anything but bytes of the right length is refused, and nothing is stored."""
        for encoded, words in ((None, "NoneType"), (b"", "no bytes"), ("1", "str")):
            registry = ScalarRegistry(lambda cls, payload, out=encoded: out)
            with pytest.raises(scalarintern.EncoderError, match=words):
                registry.pointer(registry.intern(Number, 1))
            assert registry.stats().pointers == 0
        registry = ScalarRegistry()
        registry.register(Number, encode=lambda payload: b"123", nbytes=4)
        with pytest.raises(scalarintern.EncoderError, match="3 bytes where the class has 4"):
            registry.pointer(registry.intern(Number, 1))

    def test_an_encoder_that_raises_is_heard(self, registry: ScalarRegistry) -> None:
        """The encoder's own error comes through, and the next try works."""
        scalar = registry.intern(Number, 2**70)
        with pytest.raises(struct.error):
            registry.pointer(scalar)

        assert registry.stats().pointers == 0
        assert registry.pointer(registry.intern(Number, 1)).value

    def test_classes_that_cannot_be_interned(self, registry: ScalarRegistry) -> None:
        """Each misuse of a class is told with what to do."""

        class Slotted:
            __slots__ = ("value",)

            def __init__(self, value: Any) -> None:
                self.value = value

        with pytest.raises(scalarintern.NotAScalarClassError, match="__weakref__"):
            registry.intern(Slotted, 1)
        with pytest.raises(scalarintern.NotAScalarClassError, match="read="):
            registry.intern(str, 1)
        with pytest.raises(scalarintern.UnsupportedValueError, match="only bool, int and float"):
            registry.intern(Number, "text")
        with pytest.raises(scalarintern.NotAScalarClassError, match="no class"):
            registry.intern(5, 1)  # type: ignore[arg-type]
        with pytest.raises(scalarintern.NotAScalarClassError, match="unknown here"):
            registry.pointer(Other(1))


class TestAudit:
    """What was written through a pointer is found and put back."""

    def test_a_written_buffer_is_found_and_repaired(self, registry: ScalarRegistry) -> None:
        """audit names class and value, and repair puts the bytes back."""
        pointer = registry.pointer(registry.intern(Number, 64))
        assert registry.audit() == []
        ctypes.c_int64.from_address(pointer.value).value = 65

        [finding] = registry.audit(repair=True)

        assert (finding.cls, finding.value, finding.repaired) == ("Number", 64, True)
        assert (finding.expected[0], finding.found[0]) == (64, 65)
        assert registry.audit() == []
        assert ctypes.c_int64.from_address(pointer.value).value == 64


def test_the_registry_knows_nothing_of_the_dsl() -> None:
    """Importing the package loads neither the DSL nor anything for the terminal."""
    text = (
        "import sys, scalarintern, scalarintern.registry;"
        "print([m for m in ('cutlass', 'rich', 'matplotlib', 'numpy', 'psutil', 'pympler')"
        " if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
