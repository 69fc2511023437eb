"""Payloads, the keys that name them bit-exactly, and the buffers that hold them."""

from __future__ import annotations

import ctypes
import struct
from typing import Any, Final, Union

from .errors import EncoderError

__all__ = [
    "COMPACT",
    "OFFSET",
    "Key",
    "Payload",
    "buffer_of",
    "bytes_at",
    "compact_pointer",
    "encoded_pointer",
    "key_of",
    "own",
    "payload_of",
]

Payload = Union[bool, int, float]
Key = Union[int, float, bytes, str]

_pack_double: Final = struct.Struct("<d").pack
_unpack_double: Final = struct.Struct("<d").unpack


def key_of(payload: Any, kind: type | None = None) -> Key | None:
    """Return the bit-exact key of a payload, or None if it is no plain number.

    An ``int`` is its own key, and so is a ``float`` in a class of floats where
    equal means the same bits. Everything else is spelled out, so that nothing
    meets by ``==``: zeros, NaNs and other floats as their 8 bytes, a ``bool`` as
    one byte, an ``int`` in a class of floats in hexadecimal.
    """
    exact = type(payload)
    if exact is int:
        return hex(payload) if kind is float else payload
    if exact is float:
        if kind is float and payload and payload == payload:
            return payload  # type: ignore[no-any-return]
        return _pack_double(payload)
    if exact is bool:
        return b"\x01" if payload else b"\x00"
    return None


def payload_of(key: Key) -> Payload:
    """Return the payload that :func:`key_of` made ``key`` from."""
    if isinstance(key, str):
        return int(key, 16)
    if isinstance(key, bytes):
        payload: Payload = bool(key[0]) if len(key) == 1 else _unpack_double(key)[0]
        return payload
    return key


def own(pointer: ctypes.c_void_p, buffer: Any) -> ctypes.c_void_p:
    """Make ``pointer`` keep ``buffer`` alive, with no cycle, and return it."""
    if vars(pointer):
        pointer._scalarintern_buffer = buffer  # type: ignore[attr-defined]
    else:  # a dict of its own is half the size of the one that shares its keys
        pointer.__dict__ = {"_scalarintern_buffer": buffer}
    return pointer


def buffer_of(pointer: ctypes.c_void_p) -> Any:
    """Return the ctypes object that ``pointer`` addresses and owns, or None."""
    for held in vars(pointer).values():
        try:
            if ctypes.addressof(held) == pointer.value:
                return held
        except TypeError:
            continue
    return None


#: Bytes into a pointer object's own storage at which it can hold a scalar.
OFFSET: Final = 8


def _room_in_pointer() -> bool:
    """Whether a ``c_void_p`` has room for another 8 bytes beside its address.

    CPython keeps small ctypes values in 16 bytes inside the object. That it does
    is taken from ctypes: a resize to 16 bytes which moves nothing found them there.
    """
    try:
        pointer = ctypes.c_void_p()
        address = ctypes.addressof(pointer)
        ctypes.resize(pointer, 2 * OFFSET)
        end = id(pointer) + ctypes.c_void_p.__basicsize__
        return address == ctypes.addressof(pointer) and id(pointer) < address <= end - 2 * OFFSET
    except (AttributeError, ValueError, DeprecationWarning):
        return False


#: Whether :func:`compact_pointer` puts the bytes into the pointer object itself.
COMPACT: Final = _room_in_pointer()


def compact_pointer(ctype: Any, payload: Payload) -> ctypes.c_void_p:
    """Return a launch pointer to a ``ctype`` (8 bytes at most) that holds ``payload``.

    Where there is room the pointer is its own buffer: one object to make, to keep
    and to free instead of three.
    """
    if COMPACT:
        pointer = ctypes.c_void_p()
        address = ctypes.addressof(pointer) + OFFSET
        pointer.value = address
        ctype.from_address(address).value = payload
        return pointer
    buffer = ctype(payload)
    return own(ctypes.c_void_p(ctypes.addressof(buffer)), buffer)


def encoded_pointer(encoded: object, nbytes: int | None = None) -> ctypes.c_void_p:
    """Return a launch pointer to a fresh buffer that holds ``encoded``.

    Args:
        encoded: What an encoder returned: ``bytes``, not empty.
        nbytes: The length it must have, in bytes, where that is known.

    Raises:
        EncoderError: It is no ``bytes``, is empty, or has another length.
    """
    if type(encoded) is not bytes or not encoded:
        found = "no bytes" if encoded == b"" else f"a {type(encoded).__name__}"
        raise EncoderError(f"the encoder returned {found}; return the scalar's bytes")
    if nbytes is not None and len(encoded) != nbytes:
        raise EncoderError(
            f"the encoder returned {len(encoded)} bytes where the class has {nbytes}; "
            f"return exactly {nbytes}"
        )
    buffer = ctypes.create_string_buffer(encoded, len(encoded))
    return own(ctypes.c_void_p(ctypes.addressof(buffer)), buffer)


def bytes_at(pointer: ctypes.c_void_p, ctype: Any = None) -> bytes:
    """Return the bytes that ``pointer`` owns; its table's ``ctype`` tells their number."""
    if pointer.value == ctypes.addressof(pointer) + OFFSET:
        return ctypes.string_at(pointer.value, ctypes.sizeof(ctype))
    buffer = buffer_of(pointer)  # which may be false, as a c_int of 0 is
    return b"" if buffer is None else bytes(buffer)
