"""Misuse gets a clear error of this package, and changes nothing."""

from __future__ import annotations

import re
import struct
import threading
import warnings

import pytest

import scalarintern
from scalarintern import (
    ConfigurationError,
    EncoderError,
    NotAScalarClassError,
    NotInstalledError,
    ScalarInternError,
    UnsupportedValueError,
)
from scalarintern.registry import ScalarRegistry


class Whole:
    """A scalar that holds an int, of 8 bytes."""

    def __init__(self, value):
        self.value = int(value)


class Anything:
    """A scalar that holds whatever it is given."""

    def __init__(self, value):
        self.value = value


class Nothing:
    """A class whose instances hold no payload."""

    def __init__(self, value):
        pass


class Slotted:
    """A class whose instances cannot be weakly referenced."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


def name_of(thing):
    """Name a parameter the same in every process: by what it is, if by its address otherwise."""
    return re.sub(r" (object )?at 0x[0-9a-f]+", "", repr(thing))


def encode(cls, payload):
    """Encode an int in 8 bytes."""
    return struct.pack("<q", payload)


@pytest.fixture
def registry():
    """Give a registry with one scalar and one pointer retained."""
    registry = ScalarRegistry(encode, retain=16)
    registry.pointer(registry.intern(Whole, 5))
    return registry


@pytest.fixture
def unchanged(registry):
    """Fail where a test changes what the registry holds, retains or is set to."""
    before = registry.stats()
    scalar = registry.intern(Whole, 5)
    pointer = registry.pointer(scalar)
    yield
    after = registry.stats()
    assert registry.intern(Whole, 5) is scalar
    assert registry.pointer(scalar) is pointer
    assert (after.retain, after.retained, after.live) == (before.retain, 1, 1)
    assert (after.pointers, after.retained_pointers) == (1, 1)
    assert (after.misses, after.hits) == (before.misses, before.hits)


BOUNDS = [-1, -(10**30), "x", "64", True, False, 1.5, 4096.0, b"1", [], object()]


@pytest.mark.usefixtures("unchanged")
class TestSettings:
    """Settings of the wrong type or out of range."""

    @pytest.mark.parametrize("retain", BOUNDS, ids=name_of)
    def test_a_bound_that_cannot_be(self, registry, retain):
        """configure() refuses the bound by a ValueError that shows it and says what to pass."""
        with pytest.raises(ConfigurationError) as caught:
            registry.configure(retain=retain)

        assert isinstance(caught.value, ValueError)
        assert repr(retain) in str(caught.value)
        assert "int of 0 or more" in str(caught.value)

    @pytest.mark.parametrize("count_hits", [1, 0, "yes", object()], ids=name_of)
    def test_a_count_hits_that_is_no_bool(self, registry, count_hits):
        """configure() refuses it, and takes the bound beside it no more than that."""
        with pytest.raises(ConfigurationError) as caught:
            registry.configure(retain=5, count_hits=count_hits)

        assert repr(count_hits) in str(caught.value)

    def test_a_wrong_bound_beside_a_right_setting(self, registry):
        """One wrong setting of two changes neither."""
        with pytest.raises(ConfigurationError):
            registry.configure(retain=-1, count_hits=True)

        assert registry.stats().hits is None

    def test_an_unknown_setting(self, registry):
        """A misspelled setting is a TypeError that names it."""
        with pytest.raises(TypeError, match="retian"):
            registry.configure(retian=64)


@pytest.mark.parametrize("retain", BOUNDS, ids=name_of)
def test_a_registry_with_a_bound_that_cannot_be(retain):
    """ScalarRegistry() refuses the same bounds that configure() does."""
    with pytest.raises(ConfigurationError, match="retain"):
        ScalarRegistry(encode, retain=retain)


@pytest.mark.usefixtures("unchanged")
class TestClasses:
    """Classes that have no scalars to intern."""

    @pytest.mark.parametrize("cls", [None, 5, "Whole", Whole(1), [Whole]], ids=name_of)
    def test_what_is_no_class(self, registry, cls):
        """Interning in something that is no class is a TypeError that shows it."""
        with pytest.raises(NotAScalarClassError) as caught:
            registry.intern(cls, 1)

        assert isinstance(caught.value, TypeError)
        assert repr(cls) in str(caught.value)

    def test_a_class_without_payload(self, registry):
        """A class whose instances hold nothing to read is refused by name."""
        with pytest.raises(NotAScalarClassError, match=r"Nothing.*read="):
            registry.intern(Nothing, 1)

    def test_a_class_that_cannot_be_weakly_referenced(self, registry):
        """A slotted class is refused with the slot that it lacks."""
        with pytest.raises(NotAScalarClassError, match=r"Slotted.*__weakref__"):
            registry.intern(Slotted, 1)

    def test_a_class_registered_twice(self, registry):
        """Registering again is refused and leaves the first registration in force."""
        table = registry.table(Whole)
        with pytest.raises(NotAScalarClassError, match="Whole"):
            registry.register(Whole, encode=lambda payload: b"other")

        assert registry.table(Whole) is table

    def test_a_pointer_of_a_class_never_seen(self, registry):
        """A pointer of an unknown class's scalar is refused by the class's name."""
        with pytest.raises(NotAScalarClassError, match=r"Anything.*(intern|register)"):
            registry.pointer(Anything(1))


@pytest.mark.usefixtures("unchanged")
class TestValues:
    """Values that are no plain numbers, and constructors that raise."""

    @pytest.mark.parametrize("value", [None, "5", 1j, [], object(), b"5"], ids=name_of)
    def test_a_value_that_is_no_number(self, registry, value):
        """A scalar that holds no plain number is refused by its type."""
        with pytest.raises(UnsupportedValueError) as caught:
            registry.intern(Anything, value)

        assert isinstance(caught.value, TypeError)
        assert type(value).__name__ in str(caught.value)
        assert registry.audit() == []

    def test_a_subclass_of_a_number(self, registry):
        """A payload of a subclass of int is refused: it may compare as it likes."""

        class Odd(int):
            pass

        with pytest.raises(UnsupportedValueError, match="Odd"):
            registry.intern(Anything, Odd(5))

    def test_the_error_of_a_constructor(self, registry):
        """What the constructor raises comes out as it is."""
        with pytest.raises(ValueError, match="invalid literal") as caught:
            registry.intern(Whole, "five")

        assert not isinstance(caught.value, ScalarInternError)

    def test_a_pointer_of_a_scalar_that_holds_no_number(self, registry):
        """A scalar that somebody put a text into has no pointer."""
        scalar = Whole(1)
        scalar.value = "text"
        with pytest.raises(UnsupportedValueError, match="str"):
            registry.pointer(scalar)


class TestEncoders:
    """Encoders that raise, return nothing or return what cannot be a buffer."""

    def test_an_encoder_that_raises(self):
        """Its error comes out as it is; the next call works and gives one pointer."""
        calls = []

        def failing(cls, payload):
            calls.append(payload)
            if len(calls) == 1:
                raise ZeroDivisionError("no bytes today")
            return encode(cls, payload)

        registry = ScalarRegistry(failing)
        scalar = registry.intern(Whole, 5)
        with pytest.raises(ZeroDivisionError, match="no bytes today"):
            registry.pointer(scalar)

        assert registry.stats().pointers == registry.stats().retained_pointers == 0
        assert registry.pointer(scalar) is registry.pointer(Whole(5))
        assert registry.intern(Whole, 5) is scalar
        assert len(calls) == 2

    @pytest.mark.parametrize(
        "encoded", [None, b"", "12345678", bytearray(8), memoryview(b"12345678"), 8], ids=name_of
    )
    def test_an_encoder_that_returns_no_bytes(self, encoded):
        """The error says what came and what should; no pointer is kept."""
        registry = ScalarRegistry(lambda cls, payload: encoded)
        scalar = registry.intern(Whole, 5)
        for _ in range(2):
            with pytest.raises(EncoderError) as caught:
                registry.pointer(scalar)

        assert isinstance(caught.value, ValueError)
        said = "no bytes" if encoded == b"" else type(encoded).__name__
        assert said in str(caught.value)
        assert registry.stats().pointers == 0
        assert registry.intern(Whole, 5) is scalar

    @pytest.mark.parametrize("length", [1, 7, 9, 4096])
    def test_an_encoder_that_returns_bytes_of_the_wrong_length(self, length):
        """The error says both lengths; no pointer is kept."""
        registry = ScalarRegistry()
        registry.register(Whole, encode=lambda payload: bytes(length), nbytes=8)
        scalar = registry.intern(Whole, 5)
        with pytest.raises(EncoderError, match=rf"{length} bytes.* 8"):
            registry.pointer(scalar)

        assert registry.stats().pointers == 0

    def test_no_encoder_at_all(self):
        """Without an encoder scalars are interned, and a pointer is refused."""
        registry = ScalarRegistry()
        scalar = registry.intern(Whole, 5)
        assert registry.intern(Whole, 5) is scalar
        with pytest.raises(EncoderError, match="encode="):
            registry.pointer(scalar)

    def test_an_encoder_that_changes_its_mind_is_found_out(self):
        """An encoder that gives a payload other bytes later shows in audit()."""
        answers = [b"one", b"two"]
        registry = ScalarRegistry(lambda cls, payload: answers[0])
        scalar = registry.intern(Whole, 5)
        pointer = registry.pointer(scalar)
        answers.reverse()

        [finding] = registry.audit()
        assert (finding.expected, finding.found) == (b"two", b"one")
        assert registry.pointer(scalar) is pointer


class TestUnderTheDsl:
    """Misuse of the DSL's own classes."""

    @pytest.fixture(autouse=True)
    def nothing_new(self, dsl):
        """Fail where a test makes a scalar or pointer, or changes a setting."""
        before = scalarintern.stats()
        yield
        after = scalarintern.stats()
        assert (after.misses, after.live, after.retain) == (
            before.misses,
            before.live,
            before.retain,
        )
        assert scalarintern.audit() == []

    @pytest.mark.parametrize("retain", [-1, "x", True, 0.5], ids=name_of)
    def test_a_bound_that_cannot_be(self, retain):
        """scalarintern.configure() refuses it as a registry does."""
        with pytest.raises(ConfigurationError, match="retain"):
            scalarintern.configure(retain=retain)

    @pytest.mark.parametrize("name", ["Numeric", "Integer", "Float"])
    def test_an_abstract_class(self, dsl, name):
        """Interning in an abstract class is refused with concrete ones to use."""
        cls = getattr(dsl, name, None)
        if cls is None:
            pytest.skip(f"this release has no {name}")
        for call in (lambda: cls.intern(1), lambda: scalarintern.intern(cls, 1)):
            with pytest.raises(NotAScalarClassError, match=rf"{name}.*Int32"):
                call()

    @pytest.mark.parametrize("cls", [int, float, object, Whole, None, "Int32"], ids=name_of)
    def test_a_class_that_is_no_scalar(self, cls):
        """scalarintern.intern() refuses what is no numeric class of the DSL."""
        with pytest.raises(NotAScalarClassError, match="numeric class"):
            scalarintern.intern(cls, 1)

    @pytest.mark.parametrize("value", [None, "5", [1], object(), 1j], ids=name_of)
    def test_an_unsupported_input(self, dsl, value):
        """An input that the constructor refuses gets the constructor's own error."""
        for cls in (dsl.Int32, dsl.Float32):
            with pytest.raises(Exception) as stock:
                cls(value)
            with pytest.raises(type(stock.value)) as ours:
                cls.intern(value)

            assert str(ours.value) == str(stock.value)

    def test_the_wrong_number_of_arguments(self, dsl):
        """intern takes one value, no fewer and no more."""
        for call in (
            lambda: dsl.Int32.intern(),
            lambda: dsl.Int32.intern(1, 2),
            lambda: scalarintern.intern(dsl.Int32),
        ):
            with pytest.raises(TypeError):
                call()

    def test_intern_while_uninstalled(self, dsl):
        """Without the adapter scalarintern.intern() says to install it."""
        scalarintern.uninstall()
        try:
            with pytest.raises(NotInstalledError, match="install"):
                scalarintern.intern(dsl.Int32, 1)
            with pytest.raises(AttributeError):
                dsl.Int32.intern(1)
        finally:
            scalarintern.install()

    def test_intern_on_an_instance(self, dsl):
        """An instance has no intern: it lives on the metaclass."""
        with pytest.raises(AttributeError):
            dsl.Int32(1).intern(1)

    def test_a_class_whose_method_raises(self, dsl):
        """An unsupported class fails to marshal as in stock, from threads as well."""
        cls = getattr(dsl, "Float8E4M3FN", None)
        if cls is None:
            pytest.skip("this release has no Float8E4M3FN")
        errors = []

        def marshal():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    cls(1.0).__c_pointers__()
            except Exception as error:
                errors.append(type(error))

        threads = [threading.Thread(target=marshal) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert errors == [ValueError] * 4


def test_every_error_is_one_of_the_package():
    """Each error derives from ScalarInternError and from a builtin a caller would catch."""
    for error, builtin in (
        (ConfigurationError, ValueError),
        (EncoderError, ValueError),
        (NotAScalarClassError, TypeError),
        (UnsupportedValueError, TypeError),
        (NotInstalledError, RuntimeError),
    ):
        assert issubclass(error, ScalarInternError)
        assert issubclass(error, builtin)
