"""Every unreadable file ends in sentences that say where and what, never in another exception."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core import Finding, InvalidDefinitions
from redrive.topology.definitions import parse_definitions, read_definitions
from tests.unit.topology.strategies import json_values


def faults(text: str | bytes) -> tuple[Finding, ...]:
    with pytest.raises(InvalidDefinitions) as raised:
        read_definitions(text, file="d.json")
    assert raised.value.findings
    return raised.value.findings


def only(text: str | bytes) -> str:
    (finding,) = faults(text)
    return finding.text


def in_queue(**fields: Any) -> str:
    return json.dumps({"queues": [{"vhost": "/", "name": "a", **fields}]})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "definitions: the file is empty; a definitions file is a JSON object"),
        ('{"queues": [}', "d.json:1:13: definitions: is not JSON: Expecting value; see what stands just before"),
        ('{\n  "queues": []\n  "x": 1}', "d.json:3:3: definitions: is not JSON: Expecting ',' delimiter"),
        ("queues: []", "d.json:1:1: definitions: is not JSON"),
        ('{"a": "\0"}', "d.json:1:8: definitions: is not JSON: Invalid control character at"),
        ("[]", "d.json:1:1: definitions: is a list, not an object"),
        ('"x"', 'd.json:1:1: definitions: is the text "x", not an object'),
        ('{"queues": {}}', "d.json:1:12: queues: is an object, not a list; list the objects"),
        ('{"queues": ["a"]}', 'd.json:1:13: queues[0]: is the text "a", not an object'),
        ('{"parameters": 5}', "d.json:1:16: parameters: is the number 5, not a list"),
    ],
)
def test_what_is_no_definitions_file_gets_a_sentence(text: str, sentence: str) -> None:
    assert only(text).startswith(sentence)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"name": 5}, "queues[0].name: must be a text, not the number 5"),
        ({"name": ""}, "queues[0].name: is empty, and a queue needs a name"),
        ({"durable": "yes"}, 'queues[0].durable: must be true or false, not the text "yes"'),
        ({"durable": None}, "queues[0].durable: must be true or false, not null"),
        ({"auto_delete": 0}, "queues[0].auto_delete: must be true or false, not the number 0"),
        ({"arguments": None}, "queues[0].arguments: must be an object, not null"),
        ({"arguments": [1]}, "queues[0].arguments: must be an object, not a list"),
        ({"vhost": 1}, "queues[0].vhost: must be a text, not the number 1"),
    ],
)
def test_a_wrong_type_is_named_with_its_path(fields: dict[str, Any], sentence: str) -> None:
    assert sentence in only(in_queue(**fields))


@pytest.mark.parametrize(
    ("section", "item", "missing"),
    [
        ("queues", {"vhost": "/"}, ["name"]),
        ("queues", {"name": "a"}, ["vhost"]),
        ("exchanges", {"vhost": "/", "name": "a"}, ["type"]),
        ("bindings", {"vhost": "/"}, ["destination_type", "source", "destination"]),
        ("policies", {"vhost": "/", "name": "a"}, ["pattern", "definition"]),
        ("vhosts", {}, ["name"]),
        ("parameters", {"vhost": "/", "component": "operator_policy", "name": "a"}, ["value"]),
    ],
)
def test_few_fields_may_be_missing_and_every_other_is_reported(
    section: str, item: dict[str, Any], missing: list[str]
) -> None:
    found = faults(json.dumps({"vhosts": [], section: [item]}))
    assert [one.address for one in found] == [f"{section}[0].{key}" for key in missing]
    assert {one.code for one in found} == {"missing-key"}


def test_all_faults_come_at_once_each_with_its_line() -> None:
    text = '{"queues": [\n {"vhost": "/", "name": 1},\n {"vhost": "/", "name": "b",\n  "durable": 3}],\n "bindings": 1}'
    assert [(one.address, one.position.line) for one in faults(text) if one.position] == [
        ("queues[0].name", 2),
        ("queues[1].durable", 4),
        ("bindings", 5),
    ]


def test_the_place_of_something_missing_is_the_object_it_is_missing_from() -> None:
    (finding,) = faults('{"queues": [\n\n   {"vhost": "/"}]}')
    assert finding.position is not None
    assert (finding.position.line, finding.position.column) == (3, 4)


def test_a_place_after_brackets_and_quotes_inside_texts_is_still_right() -> None:
    text = '{"note": "[{\\"queues\\": [,]}",\n "list": [[1, {"a": []}], {}],\n "queues": [{"vhost": "/", "name": 1}]}'
    (finding,) = faults(text)
    assert str(finding.position) == "d.json:3:36"


@pytest.mark.parametrize(
    ("section", "first", "second", "code"),
    [
        ("queues", {}, {"durable": False}, "duplicate-queue"),
        ("queues", {}, {"arguments": {"x-max-length": 1}}, "duplicate-queue"),
        ("exchanges", {"type": "topic"}, {"type": "direct"}, "duplicate-exchange"),
        ("policies", {"pattern": "a", "definition": {}}, {"pattern": "b", "definition": {}}, "duplicate-policy"),
    ],
)
def test_two_objects_of_one_name_with_different_settings_are_refused(
    section: str, first: dict[str, Any], second: dict[str, Any], code: str
) -> None:
    text = json.dumps({section: [{"vhost": "/", "name": "a", **one} for one in (first, second)]})
    (finding,) = faults(text)
    assert (finding.code, finding.address) == (code, f"{section}[1]")


def test_a_key_given_twice_is_refused_because_versions_take_different_values() -> None:
    text = '{"queues": [{"vhost": "/", "name": "a",\n "arguments": {"x-max-length": 1, "x-max-length": 2}}]}'
    assert only(text) == (
        "d.json:2:35: queues[0].arguments.x-max-length: is given twice: of the two values 3.10 takes the last and "
        "4.x the first; keep one"
    )


@pytest.mark.parametrize("number", ["1e400", "-1e400", "NaN", "Infinity", "-Infinity", "1" + "0" * 5000])
def test_a_literal_that_is_no_number_is_refused(number: str) -> None:
    (finding,) = faults(f'{{"queues": [{{"vhost": "/", "name": "a", "arguments": {{"x": {number}}}}}]}}')
    assert (finding.code, finding.address) == ("bad-number", "queues[0].arguments.x")
    assert len(finding.text) < 200


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"a": "\\ud800"}', "half-character"),
        ('{"a": "\ud800"}', "half-character"),
        ('{"\\udc00": 1}', "half-character"),
        ('{"a": "x\\u0000"}', "nul-character"),
    ],
)
def test_half_a_surrogate_pair_and_nul_are_refused(text: str, code: str) -> None:
    (finding,) = faults(text)
    assert finding.code == code


def test_a_surrogate_pair_is_a_character() -> None:
    assert read_definitions('{"a": "\\ud83d\\ude00 \\\\ud800"}').extra.thaw() == {"a": "😀 \\ud800"}


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
@pytest.mark.parametrize("levels", [70, 900, 100_000])
def test_deep_nesting_is_refused(opening: str, closing: str, levels: int) -> None:
    (finding,) = faults('{"queues": [], "x": ' + opening * levels + "1" + closing * levels + "}")
    assert finding.code == "too-deep"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b'{"a":\n "\xff"}', "d.json:2:3: definitions: is not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "definitions: is UTF-16; save it as UTF-8"),
    ],
)
def test_bytes_that_are_no_utf_8_are_refused(text: bytes, sentence: str) -> None:
    assert only(text).startswith(sentence)


_SECTIONS = ["vhosts", "exchanges", "queues", "bindings", "policies", "parameters", "users"]
_KEYS = ["name", "vhost", "type", "durable", "arguments", "source", "destination", "pattern", "definition", "value"]
_objects = st.dictionaries(st.sampled_from([*_KEYS, "component", "priority", "x"]), json_values, max_size=6)
_documents = st.dictionaries(st.sampled_from(_SECTIONS), st.lists(_objects | json_values, max_size=3) | json_values)


@given(content=json_values | _documents)
def test_any_json_is_read_or_refused(content: Any) -> None:
    assert read_or_refused(json.dumps(content))


@given(text=st.text() | st.binary() | st.text(alphabet='{}[]":,\\ud80e1-NaIf \n'))
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    assert read_or_refused(text)


def read_or_refused(text: str | bytes) -> bool:
    try:
        parse_definitions(text)
    except InvalidDefinitions as refused:
        return bool(refused.findings) and all(one.text for one in refused.findings)
    return True
