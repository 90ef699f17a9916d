"""What is written can be imported by every version, and is the same when read again."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from redrive.topology import Arguments, Binding, Exchange, Policy, Queue, Topology, Vhost
from redrive.topology.definitions import (
    parse_definitions,
    read_definitions,
    rewrite_definitions,
    write_definitions,
)
from tests.unit.topology.strategies import topologies

REAL_FILES = Path(__file__).parents[3].parent / "shared" / "definitions"
LARGE = 50_000

LADDER = Topology(
    vhosts=(Vhost(name="/"),),
    exchanges=(Exchange(name="events", type="topic"),),
    queues=(Queue(name="orders", arguments=Arguments({"x-queue-type": "quorum"})),),
    bindings=(Binding(source="events", destination="orders", routing_key="o.#"),),
    policies=(
        Policy(name="p", pattern="^o", definition=Arguments({"max-length": 5}), apply_to="queues"),
        Policy(name="cap", pattern="", definition=Arguments({"max-length": 9}), apply_to="queues", operator=True),
    ),
)


def test_the_text_is_two_space_json_with_every_field_written_out() -> None:
    assert write_definitions(LADDER) == (
        json.dumps(
            {
                "vhosts": [{"name": "/"}],
                "parameters": [
                    {
                        "vhost": "/",
                        "component": "operator_policy",
                        "name": "cap",
                        "value": {"pattern": "", "apply-to": "queues", "definition": {"max-length": 9}, "priority": 0},
                    }
                ],
                "policies": [
                    {
                        "vhost": "/",
                        "name": "p",
                        "pattern": "^o",
                        "apply-to": "queues",
                        "definition": {"max-length": 5},
                        "priority": 0,
                    }
                ],
                "exchanges": [
                    {
                        "name": "events",
                        "vhost": "/",
                        "type": "topic",
                        "durable": True,
                        "auto_delete": False,
                        "internal": False,
                        "arguments": {},
                    }
                ],
                "queues": [
                    {
                        "name": "orders",
                        "vhost": "/",
                        "durable": True,
                        "auto_delete": False,
                        "arguments": {"x-queue-type": "quorum"},
                    }
                ],
                "bindings": [
                    {
                        "source": "events",
                        "vhost": "/",
                        "destination": "orders",
                        "destination_type": "queue",
                        "routing_key": "o.#",
                        "arguments": {},
                    }
                ],
            },
            indent=2,
        )
        + "\n"
    )


def test_names_stay_readable() -> None:
    assert '"name": "größe"' in write_definitions(Topology(queues=(Queue(name="größe"),)))


def test_every_vhost_in_use_is_listed_because_4_3_does_not_boot_without() -> None:
    topology = Topology(vhosts=(Vhost(name="a"),), queues=(Queue(name="q", vhost="b"),))
    assert json.loads(write_definitions(topology))["vhosts"] == [{"name": "a"}, {"name": "b"}]


def test_a_default_queue_type_is_written_where_an_import_looks_for_it() -> None:
    topology = Topology(vhosts=(Vhost(name="a", default_queue_type="quorum"),))
    assert json.loads(write_definitions(topology))["vhosts"] == [
        {"name": "a", "metadata": {"default_queue_type": "quorum"}}
    ]


@pytest.mark.parametrize("name", ["", "amq.topic", "amq.rabbitmq.trace"])
def test_exchanges_that_every_vhost_is_born_with_are_not_written(name: str) -> None:
    topology = Topology(exchanges=(Exchange(name=name, type="topic"),))
    assert json.loads(write_definitions(topology))["exchanges"] == []


def test_exchanges_that_every_vhost_is_born_with_survive_if_the_file_had_them() -> None:
    item = {"name": "amq.topic", "vhost": "/", "type": "topic", "x": 1}
    text = json.dumps({"vhosts": [{"name": "/"}], "exchanges": [item]})
    assert json.loads(write_definitions(read_definitions(text)))["exchanges"] == [item]


def test_the_per_vhost_form_names_no_vhost_anywhere() -> None:
    text = write_definitions(LADDER, per_vhost=True)
    assert "vhost" not in text
    assert list(json.loads(text)) == ["parameters", "policies", "exchanges", "queues", "bindings"]
    assert read_definitions(text) == LADDER


def test_the_per_vhost_form_holds_one_vhost() -> None:
    topology = Topology(queues=(Queue(name="a", vhost="x"), Queue(name="b", vhost="y")))
    assert [one["name"] for one in json.loads(write_definitions(topology, per_vhost=True, vhost="y"))["queues"]] == [
        "b"
    ]
    with pytest.raises(ValueError, match="2 vhosts"):
        write_definitions(topology, per_vhost=True)


def test_a_file_is_rewritten_in_the_form_it_had() -> None:
    parameter = {"vhost": "old", "component": "shovel", "name": "s", "value": {}}
    operator = {**parameter, "component": "operator_policy", "value": {"pattern": "", "definition": {"expires": 1}}}
    policy = {"vhost": "old", "name": "p", "pattern": "", "definition": {"expires": 1}}
    original = {"queues": [{"name": "a"}], "policies": [policy], "parameters": [parameter, operator]}
    again = json.loads(rewrite_definitions(parse_definitions(json.dumps(original), vhost="new")))
    assert "vhosts" not in again
    assert [one.get("vhost") for one in again["parameters"]] == ["old", "old"]
    assert "vhost" not in again["queues"][0]
    assert_holds(again, original)


@given(topology=topologies())
def test_any_topology_is_the_same_after_writing_and_reading(topology: Topology) -> None:
    text = write_definitions(topology)
    assert read_definitions(text) == topology
    assert write_definitions(read_definitions(text)) == text
    assert json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n" == text


UNKNOWN_EVERYWHERE: dict[str, Any] = {
    "rabbit_version": "4.1.0",
    "users": [{"name": "u", "password_hash": "h", "tags": ["administrator"], "limits": {}}],
    "permissions": [{"user": "u", "vhost": "v", "configure": ".*", "write": ".*", "read": ".*"}],
    "topic_permissions": [],
    "global_parameters": [{"name": "cluster_tags", "value": [1, 2.5, None, {"deep": [True]}]}],
    "product_name": "RabbitMQ",
    "vhosts": [{"name": "v", "description": "d", "tags": [], "metadata": {"new": 1}, "limits": [], "made_up": {}}],
    "exchanges": [{"name": "e", "vhost": "v", "type": "x-own", "made_up": None, "policy": "p"}],
    "queues": [{"name": "q", "vhost": "v", "type": "classic", "exclusive": False, "made_up": [1]}],
    "bindings": [
        {"source": "e", "vhost": "v", "destination": "q", "destination_type": "queue", "properties_key": "~"},
    ],
    "policies": [{"vhost": "v", "name": "p", "pattern": ".", "definition": {"x": {"y": 1}}, "made_up": 1}],
    "parameters": [
        {"vhost": "v", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 5}},
        {
            "vhost": "v",
            "component": "operator_policy",
            "name": "o",
            "value": {"pattern": ".", "definition": {"expires": 5}, "made_up": 1},
            "made_up": 2,
        },
    ],
    "made_up": {"a": []},
}


def assert_holds(written: Any, original: Any, path: str = "") -> None:
    """Everything in the original is in what was written; more may have been added, lists of objects reordered."""
    if isinstance(original, dict):
        assert isinstance(written, dict), path
        for key, value in original.items():
            assert key in written, f"{path}.{key}"
            if not (key == "arguments" and value == []):
                assert_holds(written[key], value, f"{path}.{key}")
    elif isinstance(original, list) and any(isinstance(one, dict) for one in original):
        for index, one in enumerate(original):
            assert any(_holds(candidate, one) for candidate in written), f"{path}[{index}]"
    elif original == [] and isinstance(written, list):
        pass  # a section that was empty, and is now not
    else:
        assert written == original, path
        assert isinstance(written, bool) == isinstance(original, bool), path


def _holds(written: Any, original: Any) -> bool:
    try:
        assert_holds(written, original)
    except AssertionError:
        return False
    return True


def test_the_comparison_itself_sees_a_loss() -> None:
    for written, original in [({}, {"a": 1}), ({"a": 1}, {"a": True}), ([{"a": 1}], [{"a": 1}, {"b": 1}]), ([1], [2])]:
        assert not _holds(written, original)


def test_unknown_keys_survive_a_round_trip_wherever_they_are() -> None:
    again = json.loads(write_definitions(read_definitions(json.dumps(UNKNOWN_EVERYWHERE))))
    assert_holds(again, UNKNOWN_EVERYWHERE)


def _real_files() -> list[Any]:
    files = sorted(REAL_FILES.glob("*.json"))
    if not files:
        reason = f"the collection of real files is not there: {REAL_FILES.name}/*.json beside the repository"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason), id="none")]
    return [
        pytest.param(file, id=file.name[:40], marks=pytest.mark.slow if file.stat().st_size > LARGE else ())
        for file in files
    ]


@pytest.mark.parametrize("file", _real_files())
def test_a_real_file_loses_nothing_in_a_round_trip(file: Path) -> None:
    definitions = parse_definitions(file.read_bytes(), file=file.name)
    again = rewrite_definitions(definitions)
    assert_holds(json.loads(again), json.loads(file.read_text()))
    assert read_definitions(again) == definitions.topology
