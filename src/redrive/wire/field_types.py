"""Python types for the table values whose AMQP type Python's own types can't tell apart.

A field table holds eight kinds of integer, two of float and two of byte string. Python's `int`, `float`, `str` and
`bytes` stand for one default each; every other kind decodes to a subclass from here, so that a decoded value encodes to
the bytes it came from and still behaves as the number or string it is.

    type   AMQP                        decodes to                 Python values that encode to it
    t      boolean                     bool                       bool
    b B    int 8, unsigned             Int8, UInt8
    s u    int 16, unsigned            Int16, UInt16
    I      int 32                      int                        int that fits
    i      unsigned 32                 UInt32
    l      int 64                      int, Int64 where int 32    int that does not fit in I
                                       would do
    L      int 64 (the specification's LongLong
           name; RabbitMQ reads both)
    f d    float, double               Float32, float             float → d
    D      decimal                     Decimal                    Decimal
    S      long string                 str, LongString where it   str
                                       is not UTF-8
    x      byte array                  bytes                      bytes, bytearray, memoryview
    T      timestamp, seconds          datetime (UTC), Timestamp  datetime (aware), Timestamp
                                       beyond the year 9999
    F A    table, array                dict, list                 Mapping, list, tuple
    V      void                        None                       None
    F A    nested deeper than 100      Undecoded                  Undecoded

RabbitMQ's own parser (rabbit_binary_parser.erl) is the authority for the list and for both 'l' and 'L' being signed.
"""

from typing import Any, TypeAlias

FieldTable: TypeAlias = dict[str, Any]
"""A decoded table. Its values come from any publisher, hence `Any`; the reader of one parses it there."""


class Int8(int):
    """A signed 8-bit integer, type 'b'."""


class UInt8(int):
    """An unsigned 8-bit integer, type 'B'."""


class Int16(int):
    """A signed 16-bit integer, type 's'."""


class UInt16(int):
    """An unsigned 16-bit integer, type 'u'."""


class UInt32(int):
    """An unsigned 32-bit integer, type 'i'."""


class Int64(int):
    """A signed 64-bit integer, type 'l', whatever its size."""


class LongLong(int):
    """A signed 64-bit integer under its other name, type 'L'."""


class Float32(float):
    """A 32-bit float, type 'f'. `raw` keeps the octets it came as: a signalling NaN does not survive 64 bits."""

    __slots__ = ("raw",)
    raw: bytes | None

    def __new__(cls, value: float, raw: bytes | None = None) -> "Float32":
        self = super().__new__(cls, value)
        self.raw = raw
        return self


class Timestamp(int):
    """Seconds since 1970, type 'T', for moments that `datetime` can't hold."""


class LongString(bytes):
    """A long string, type 'S', that is not UTF-8."""


class Undecoded(bytes):
    """A table or an array that is nested too deep to be read: its own bytes, the type in front."""
