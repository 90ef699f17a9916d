"""Credentials written by a client are read by a server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import wire

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


@given(names, names)
def test_plain_and_amqplain_carry_user_and_password(user: str, password: str) -> None:
    assert wire.read_credentials("PLAIN", wire.plain_response(user, password)) == (user, password)
    assert wire.read_credentials("AMQPLAIN", wire.amqplain_response(user, password)) == (user, password)


@pytest.mark.parametrize(
    ("mechanism", "response", "code"),
    [
        ("PLAIN", b"guest", wire.ReplyCode.SYNTAX_ERROR),
        ("AMQPLAIN", b"\x05LOGIN", wire.ReplyCode.SYNTAX_ERROR),
        ("AMQPLAIN", b"\x05LOGINV", wire.ReplyCode.SYNTAX_ERROR),
        ("KERBEROS", b"", wire.ReplyCode.NOT_IMPLEMENTED),
    ],
)
def test_credentials_that_do_not_parse_are_refused(mechanism: str, response: bytes, code: wire.ReplyCode) -> None:
    with pytest.raises(wire.RemoteProtocolError) as caught:
        wire.read_credentials(mechanism, response)
    assert caught.value.reply_code is code
