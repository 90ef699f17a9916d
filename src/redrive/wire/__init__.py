"""AMQP 0-9-1 without I/O and without a clock, for both sides of a connection.

From the bottom up: `field_types`, `field_tables` and `table_entries` are field tables; `properties` a message's
properties over their raw bytes; `methods` the cold methods as values; `frames` finds frames in a stream of bytes;
`protocol_states` has the literal tables of connection and channel states. `lifecycle` obeys the tables,
`frame_receiver` reads frames one at a time, `message_scanner` reads whole messages in one go, and `connection` is what
callers use: bytes in and events out, calls in and bytes out.

`from redrive import wire`, then `wire.Connection(wire.Side.CLIENT)` and `wire.methods.QueueDeclare(queue="orders")`.
"""

from redrive.wire import methods
from redrive.wire.connection import Connection
from redrive.wire.copied_properties import copy_properties, digest_of, odd_deaths, stripped_of
from redrive.wire.envelopes import (
    BEFORE_BODY_BYTES_MAX,
    ENVELOPE_CONTENT_TYPE,
    may_be_envelope,
    open_envelope,
    unwrap_envelope,
    wrap_in_envelope,
)
from redrive.wire.errors import (
    EncodingError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    ReplyCode,
)
from redrive.wire.events import (
    Ack,
    Command,
    ContentEvent,
    Delivery,
    Event,
    Got,
    Greeted,
    Heartbeat,
    Nack,
    Published,
    Reject,
    Returned,
)
from redrive.wire.field_tables import decode_table, encode_entries, encode_table
from redrive.wire.field_types import (
    FieldTable,
    Float32,
    Int8,
    Int16,
    Int64,
    LongLong,
    LongString,
    Timestamp,
    UInt8,
    UInt16,
    UInt32,
    Undecoded,
)
from redrive.wire.frames import PROTOCOL_HEADER, Frame, FrameSplitter, encode_frame
from redrive.wire.methods import Side
from redrive.wire.negotiation import Limits
from redrive.wire.properties import EMPTY, Properties, PropertyChanges, cut_headers, flags_of, sort_headers
from redrive.wire.protocol_states import CHANNEL, CONNECTION, ChannelState, ConnectionState
from redrive.wire.sasl import amqplain_response, plain_response, read_credentials
from redrive.wire.table_entries import edit_table, raw_entries, read_entry
from redrive.wire.typed_json import properties_as_json, properties_from_json

__all__ = [
    "BEFORE_BODY_BYTES_MAX",
    "CHANNEL",
    "CONNECTION",
    "EMPTY",
    "ENVELOPE_CONTENT_TYPE",
    "PROTOCOL_HEADER",
    "Ack",
    "ChannelState",
    "Command",
    "Connection",
    "ConnectionState",
    "ContentEvent",
    "Delivery",
    "EncodingError",
    "Event",
    "FieldTable",
    "Float32",
    "Frame",
    "FrameSplitter",
    "Got",
    "Greeted",
    "Heartbeat",
    "Int8",
    "Int16",
    "Int64",
    "Limits",
    "LocalProtocolError",
    "LongLong",
    "LongString",
    "Nack",
    "Properties",
    "PropertyChanges",
    "ProtocolError",
    "Published",
    "Reject",
    "RemoteProtocolError",
    "ReplyCode",
    "Returned",
    "Side",
    "Timestamp",
    "UInt8",
    "UInt16",
    "UInt32",
    "Undecoded",
    "amqplain_response",
    "copy_properties",
    "cut_headers",
    "decode_table",
    "digest_of",
    "edit_table",
    "encode_entries",
    "encode_frame",
    "encode_table",
    "flags_of",
    "may_be_envelope",
    "methods",
    "odd_deaths",
    "open_envelope",
    "plain_response",
    "properties_as_json",
    "properties_from_json",
    "raw_entries",
    "read_credentials",
    "read_entry",
    "sort_headers",
    "stripped_of",
    "unwrap_envelope",
    "wrap_in_envelope",
]
