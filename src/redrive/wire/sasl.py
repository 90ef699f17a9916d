"""The SASL mechanisms with a password, PLAIN and AMQPLAIN: writing and reading the response."""

from redrive.wire.errors import RemoteProtocolError, ReplyCode
from redrive.wire.field_tables import decode_table, encode_text
from redrive.wire.table_entries import edit_table


def plain_response(user: str, password: str) -> bytes:
    """PLAIN (RFC 4616), with no authorization identity."""
    return b"\0" + encode_text(user) + b"\0" + encode_text(password)


def amqplain_response(user: str, password: str) -> bytes:
    """AMQPLAIN: the entries of a table, without its length."""
    return edit_table(b"", {"LOGIN": user, "PASSWORD": password})


def read_credentials(mechanism: str, response: bytes) -> tuple[str, str]:
    """User and password out of a client's response. Raises RemoteProtocolError: 540 for an unknown mechanism, 502."""
    match mechanism:
        case "PLAIN":
            parts = response.split(b"\0")
            if len(parts) == 3:
                return _text(parts[1]), _text(parts[2])
        case "AMQPLAIN":
            table = decode_table(response)
            user, password = table.get("LOGIN"), table.get("PASSWORD")
            if isinstance(user, str) and isinstance(password, str):
                return user, password
        case _:
            raise RemoteProtocolError(ReplyCode.NOT_IMPLEMENTED, f"there is no mechanism {mechanism!r} here")
    raise RemoteProtocolError(ReplyCode.SYNTAX_ERROR, f"the {mechanism} response does not parse")


def _text(raw: bytes) -> str:
    return str(raw, "utf-8", "surrogateescape")
