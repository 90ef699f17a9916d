"""The JSON Schema accepts what the reader accepts, and refuses what people get wrong."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from redrive.core import InvalidDeclaration
from redrive.topology import SHAPES, declaration_schema, declare
from tests.examples import examples

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*/redrive.yaml"))
VALIDATOR = Draft202012Validator(declaration_schema())


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(declaration_schema())
    assert declaration_schema()["title"] == "redrive.yaml"


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda path: path.parent.name)
def test_every_example_fits_the_schema(file: Path) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(yaml.safe_load(file.read_text()))] == []


def test_every_option_of_every_shape_is_explained() -> None:
    definitions = declaration_schema()["$defs"]
    for name in SHAPES:
        options = definitions[f"retry-{name}"]["properties"]
        assert all(text["description"] for key, text in options.items() if key != "shape")


@pytest.mark.parametrize(
    "wrong",
    [
        {"quues": {}},
        {"queues": {"a": {"retry": {"delayz": ["1s"]}}}},
        {"queues": {"a": {"retry": [30]}}},
        {"queues": {"a": {"retry": {"attempts": 0}}}},
        {"queues": {"a": {"retry": {"shape": "leader"}}}},
        {"exchanges": {"e": "topik"}},
        {"exchanges": {"e": {"durable": True}}},
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(wrong: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid(wrong)
    with pytest.raises(InvalidDeclaration):
        declare(**wrong)


durations = st.sampled_from(["1s", "500ms", "1h30m", "1.5s", "2 m", "30", "", "s", "-1s"])
retries = (
    st.just(False)
    | st.lists(durations, max_size=3)
    | st.fixed_dictionaries(
        {},
        optional={
            "shape": st.sampled_from([*SHAPES, "wrong"]),
            "delays": st.lists(durations, max_size=2),
            "attempts": st.integers(-1, 20_000),
            "wait": st.sampled_from(["{queue}.{delay}", "x.{delay}"]),
        },
    )
)


@settings(max_examples=examples(300), deadline=None)
@given(retries)
def test_what_the_reader_accepts_the_schema_accepts(retry: Any) -> None:
    data = {"queues": {"a": {"retry": retry}}}
    try:
        declare(**data)
    except InvalidDeclaration:
        return
    assert VALIDATOR.is_valid(data)
