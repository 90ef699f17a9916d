"""The cold methods agree with pamqp's register and round trip to the byte."""

import re
from contextlib import suppress
from inspect import signature
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, exceptions, frame

from redrive import wire
from redrive.wire import methods
from redrive.wire.methods.codec import Domain
from tests.unit.wire import strategies

HOT = {0x003C0028, 0x003C0032, 0x003C003C, 0x003C0047, 0x003C0050, 0x003C005A, 0x003C0078}
PAMQP_DOMAINS = {
    Domain.BIT: "bit",
    Domain.OCTET: "octet",
    Domain.SHORT: "short",
    Domain.LONG: "long",
    Domain.LONG_LONG: "longlong",
    Domain.SHORT_STRING: "shortstr",
    Domain.LONG_STRING: "longstr",
    Domain.LONG_TEXT: "longstr",
    Domain.TABLE: "table",
}
DRAWN: dict[Domain, st.SearchStrategy[Any]] = {
    Domain.BIT: st.booleans(),
    Domain.OCTET: st.integers(0, 255),
    Domain.SHORT: st.integers(0, 65535),
    Domain.LONG: st.integers(0, 0xFFFFFFFF),
    Domain.LONG_LONG: st.integers(0, (1 << 64) - 1),
    Domain.SHORT_STRING: strategies.short_texts,
    Domain.LONG_STRING: st.binary(max_size=60),
    Domain.LONG_TEXT: strategies.texts,
    Domain.TABLE: strategies.tables,
}

EMPTY: dict[Domain, Any] = {
    Domain.BIT: False,
    Domain.OCTET: 0,
    Domain.SHORT: 0,
    Domain.LONG: 0,
    Domain.LONG_LONG: 0,
    Domain.SHORT_STRING: "",
    Domain.LONG_STRING: b"",
    Domain.LONG_TEXT: "",
    Domain.TABLE: {},
}


def test_every_cold_method_of_pamqp_is_here_with_the_same_index_name_and_domains() -> None:
    theirs: dict[int, Any] = {index: cls for index, cls in commands.INDEX_MAPPING.items() if index not in HOT}
    ours = {index: cls for index, cls in methods.METHODS.items() if not cls.NAME.startswith("access.")}
    assert ours.keys() == theirs.keys()
    for index, cls in ours.items():
        name = ".".join("-".join(re.findall("[A-Z][a-z]*", part)) for part in theirs[index].name.split("."))
        assert name.lower() == cls.NAME
        assert [PAMQP_DOMAINS[domain] for _, domain in cls.DOMAINS] == [
            theirs[index].amqp_type(attribute) for attribute in theirs[index].attributes()
        ]


def test_the_reply_codes_are_those_of_pamqp_and_success() -> None:
    register: dict[int, Any] = {**exceptions.CLASS_MAPPING}
    theirs = {code: kind.name.replace("-", "_") for code, kind in register.items()}
    assert {code.value: code.name for code in wire.ReplyCode} == {200: "SUCCESS", **theirs}


def test_every_method_can_be_sent_with_its_defaults() -> None:
    for cls in methods.METHODS.values():
        said = {name for name, one in signature(cls).parameters.items() if one.default is one.empty}
        value = cls(**{name: EMPTY[domain] for name, domain in cls.DOMAINS if name in said})
        assert methods.decode_method(methods.encode_method(value)) == value


def test_a_reply_is_sent_by_the_other_side() -> None:
    for cls in methods.METHODS.values():
        reply = next((each for each in methods.METHODS.values() if f"{cls.NAME}-ok" == each.NAME), None)
        if reply is not None:
            assert reply.SPEAKER is (None if cls.SPEAKER is None else cls.SPEAKER.peer)


@given(st.sampled_from(list(methods.METHODS.values())), st.data())
def test_a_method_round_trips(cls: type[methods.Method], data: st.DataObject) -> None:
    value = cls(**{name: data.draw(DRAWN[domain]) for name, domain in cls.DOMAINS})
    assert methods.decode_method(methods.encode_method(value)) == value


@given(st.sampled_from(list(methods.METHODS.values())), st.data())
def test_a_method_cut_short_is_a_syntax_error(cls: type[methods.Method], data: st.DataObject) -> None:
    payload = methods.encode_method(cls(**{name: data.draw(DRAWN[domain]) for name, domain in cls.DOMAINS}))
    cut = data.draw(st.integers(0, len(payload) - 1))
    for malformed in (payload[:cut], payload + b"\x00"):
        with pytest.raises(wire.RemoteProtocolError) as caught:
            methods.decode_method(malformed)
        assert caught.value.reply_code == wire.ReplyCode.SYNTAX_ERROR


@given(st.sampled_from(list(commands.INDEX_MAPPING.items())), st.binary(max_size=80))
def test_random_arguments_decode_or_are_refused(entry: tuple[int, object], arguments: bytes) -> None:
    with suppress(wire.RemoteProtocolError):
        methods.decode_method(entry[0].to_bytes(4, "big") + arguments)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            methods.QueueDeclare(queue="orders", durable=True, arguments={"x-queue-type": "quorum"}),
            commands.Queue.Declare(queue="orders", durable=True, arguments={"x-queue-type": "quorum"}),
        ),
        (
            methods.ExchangeDeclare(exchange="events", type="topic", auto_delete=True, internal=True),
            commands.Exchange.Declare(exchange="events", exchange_type="topic", auto_delete=True, internal=True),
        ),
        (methods.BasicQos(prefetch_count=500), commands.Basic.Qos(prefetch_count=500)),
        (methods.ConnectionTuneOk(channel_max=7, frame_max=4096), commands.Connection.TuneOk(7, 4096, 0)),
        (
            methods.ConnectionClose(reply_code=320, reply_text="bye", class_id=10, method_id=40),
            commands.Connection.Close(320, "bye", 10, 40),
        ),
        (methods.ConfirmSelect(nowait=True), commands.Confirm.Select(True)),
    ],
)
def test_pamqp_writes_the_same_bytes(ours: methods.Method, theirs: Any) -> None:
    assert wire.encode_frame(1, 3, methods.encode_method(ours)) == frame.marshal(theirs, 3)


def test_names_outside_ascii_are_fine() -> None:
    declared = methods.QueueDeclare(queue="заказы.待ち")
    assert methods.decode_method(methods.encode_method(declared)) == declared


def test_a_name_of_more_than_255_octets_is_refused_with_the_argument_named() -> None:
    with pytest.raises(wire.EncodingError, match=r"queue\.declare, queue"):
        methods.encode_method(methods.QueueDeclare(queue="é" * 128))


def test_a_number_that_does_not_fit_is_refused_with_the_argument_named() -> None:
    with pytest.raises(wire.EncodingError, match="prefetch_count"):
        methods.encode_method(methods.BasicQos(prefetch_count=65536))


def test_an_unknown_method_is_not_implemented() -> None:
    with pytest.raises(wire.RemoteProtocolError) as caught:
        methods.decode_method(b"\x00\x3c\x00\x99")
    assert caught.value.reply_code == wire.ReplyCode.NOT_IMPLEMENTED
    assert (caught.value.class_id, caught.value.method_id) == (60, 0x99)


def test_secrets_stay_out_of_the_readable_form() -> None:
    said = methods.ConnectionStartOk(response=wire.plain_response("guest", "hunter2"))
    assert "hunter2" not in repr(said)
    assert "hunter2" not in repr(methods.ConnectionUpdateSecret(new_secret=b"hunter2"))
