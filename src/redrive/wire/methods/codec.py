"""Encodes and decodes the arguments of methods, and has the register of all methods.

A method is an immutable value; each field's annotation is its AMQP domain, and `@method` builds the codec from them.
These are the cold methods, a handful per connection; the seven that carry or settle messages are in `message_methods`.

Our own classes rather than pamqp's: those refuse queue and exchange names outside ASCII, which RabbitMQ takes, have no
equality and no readable form, warn and log. A test compares every class here with pamqp's register.

Not dataclasses either, though a type checker may take them for such: making fifty took a tenth of the time in which an
embedded broker starts.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import MISSING, Field, field
from enum import Enum
from inspect import get_annotations
from typing import Annotated, Any, ClassVar, NoReturn, TypeAlias, TypeVar, dataclass_transform

from redrive.wire.errors import EncodingError, RemoteProtocolError, ReplyCode, syntax_error
from redrive.wire.field_tables import decode_table, encode_short_string, encode_table, encode_text
from redrive.wire.field_types import FieldTable


class Side(Enum):
    """The two ends of a connection: the application's and the broker's."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def peer(self) -> "Side":
        return Side.SERVER if self is Side.CLIENT else Side.CLIENT


class Domain(Enum):
    """AMQP's argument domains, with the `struct` code where the size is fixed."""

    BIT = "bit"
    OCTET = "B"
    SHORT = "H"
    LONG = "I"
    LONG_LONG = "Q"
    SHORT_STRING = "short string"
    LONG_STRING = "long string"
    LONG_TEXT = "long string that is text"
    TABLE = "table"


Bit: TypeAlias = Annotated[bool, Domain.BIT]
Octet: TypeAlias = Annotated[int, Domain.OCTET]
Short: TypeAlias = Annotated[int, Domain.SHORT]
Long: TypeAlias = Annotated[int, Domain.LONG]
LongLong: TypeAlias = Annotated[int, Domain.LONG_LONG]
ShortText: TypeAlias = Annotated[str, Domain.SHORT_STRING]
LongBytes: TypeAlias = Annotated[bytes, Domain.LONG_STRING]
LongText: TypeAlias = Annotated[str, Domain.LONG_TEXT]
Table: TypeAlias = Annotated[FieldTable, Domain.TABLE]

CLIENT, SERVER = Side.CLIENT, Side.SERVER
EITHER: None = None


class Method:
    """The base of all cold methods: values, equal by their arguments."""

    INDEX: ClassVar[int]
    """class id << 16 | method id"""
    NAME: ClassVar[str]
    """As the specification writes it: `queue.declare-ok`."""
    SPEAKER: ClassVar[Side | None]
    """The side that may send it; None for either."""
    DOMAINS: ClassVar[tuple[tuple[str, Domain], ...]]
    DEFAULTS: ClassVar[dict[str, Any]]
    SHOWN: ClassVar[tuple[str, ...]]
    """The fields of the readable form; secrets stay out of it."""

    def __init__(self, **arguments: Any) -> None:
        fields = self.__dict__
        for name, default in self.DEFAULTS.items():
            fields[name] = default() if default is dict else default  # each method has a table of its own
        fields.update(arguments)
        if len(fields) != len(self.DOMAINS):
            raise TypeError(f"{type(self).__name__} takes {[name for name, _ in self.DOMAINS]}, not {list(arguments)}")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} can't be changed")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __hash__(self) -> int:
        return hash((self.INDEX, *(getattr(self, name) for name, _ in self.DOMAINS)))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.SHOWN)
        return f"{type(self).__name__}({shown})"


METHODS: dict[int, type[Method]] = {}
"""Every cold method by its index."""

_M = TypeVar("_M", bound=Method)
_WIDTHS = {domain: struct.Struct(f">{domain.value}") for domain in Domain if len(domain.value) == 1}
_LENGTH = struct.Struct(">I")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def method(index: int, speaker: Side | None) -> Callable[[type[_M]], type[_M]]:
    """Makes the class a method: reads its fields and registers it in `METHODS`."""

    def register(cls: type[_M]) -> type[_M]:
        annotations = get_annotations(cls)
        words = re.findall(r"[A-Z][a-z]*", cls.__name__)
        cls.INDEX = index
        cls.SPEAKER = speaker
        cls.NAME = f"{words[0]}.{'-'.join(words[1:])}".lower()
        cls.DOMAINS = tuple((name, annotation.__metadata__[0]) for name, annotation in annotations.items())
        cls.DEFAULTS = {name: _default(cls.__dict__[name]) for name in annotations if name in cls.__dict__}
        cls.SHOWN = tuple(name for name in annotations if getattr(cls.__dict__.get(name), "repr", True))
        METHODS[index] = cls
        return cls

    return register


def _default(value: Any) -> Any:
    if not isinstance(value, Field):
        return value
    return value.default if value.default_factory is MISSING else value.default_factory


def encode_method(value: Method) -> bytes:
    """The payload of a method frame: index and arguments. Raises EncodingError."""
    parts = [_LENGTH.pack(value.INDEX)]
    bits, bit_count = 0, 0
    for name, domain in value.DOMAINS:
        argument = getattr(value, name)
        if domain is Domain.BIT:
            bits |= bool(argument) << bit_count
            bit_count += 1
            continue
        if bit_count:
            parts.append(bytes((bits,)))
            bits, bit_count = 0, 0
        try:
            parts.append(_encode_argument(domain, argument))
        except (EncodingError, struct.error) as error:
            raise EncodingError(f"{value.NAME}, {name}: {getattr(error, 'reply_text', error)}") from None
    if bit_count:
        parts.append(bytes((bits,)))
    return b"".join(parts)


def decode_method(payload: bytes) -> Method:
    """A cold method from the payload of its frame.

    Raises RemoteProtocolError: 540 for a method that does not exist, 502 for one that does not parse.
    """
    if len(payload) < 4:
        raise syntax_error("a method frame of less than four octets")
    index = _LENGTH.unpack_from(payload)[0]
    cls = METHODS.get(index)
    if cls is None:
        raise RemoteProtocolError(
            ReplyCode.NOT_IMPLEMENTED, f"there is no method {index >> 16}.{index & 0xFFFF}", method=index
        )
    try:
        arguments, end = _decode_arguments(cls, payload)
    except (IndexError, struct.error):
        raise RemoteProtocolError(ReplyCode.SYNTAX_ERROR, f"{cls.NAME} is cut short", method=index) from None
    except RemoteProtocolError as error:
        error.method = index
        raise
    if end != len(payload):
        raise RemoteProtocolError(
            ReplyCode.SYNTAX_ERROR, f"{len(payload) - end} octets follow {cls.NAME}", method=index
        )
    return cls(**arguments)


def _encode_argument(domain: Domain, argument: Any) -> bytes:
    match domain:
        case Domain.SHORT_STRING:
            return encode_short_string(argument)
        case Domain.LONG_STRING:
            return _LENGTH.pack(len(argument)) + bytes(argument)
        case Domain.LONG_TEXT:
            raw = encode_text(argument)
            return _LENGTH.pack(len(raw)) + raw
        case Domain.TABLE:
            return encode_table(argument)
        case _:
            return _WIDTHS[domain].pack(argument)


def _decode_arguments(cls: type[Method], payload: bytes) -> tuple[dict[str, Any], int]:
    arguments: dict[str, Any] = {}
    start, bit = 4, 0
    for name, domain in cls.DOMAINS:
        if domain is Domain.BIT:
            arguments[name] = bool(payload[start] >> bit & 1)
            bit += 1
            continue
        if bit:
            start, bit = start + 1, 0
        arguments[name], start = _decode_argument(domain, payload, start)
    return arguments, start + 1 if bit else start


def _decode_argument(domain: Domain, payload: bytes, start: int) -> tuple[Any, int]:
    width = _WIDTHS.get(domain)
    if width is not None:
        return width.unpack_from(payload, start)[0], start + width.size
    if domain is Domain.SHORT_STRING:
        start, length = start + 1, payload[start]
    else:
        start, length = start + 4, _LENGTH.unpack_from(payload, start)[0]
    end = start + length
    if end > len(payload):
        raise syntax_error("an argument runs past the end of its frame")
    if domain is Domain.TABLE:
        return decode_table(payload, start, end), end
    raw = payload[start:end]
    return (raw if domain is Domain.LONG_STRING else str(raw, "utf-8", "surrogateescape")), end
