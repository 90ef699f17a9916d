"""Texts of the command line that once misled a newcomer: they say exactly what happened and what to do."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.dlq_stage import Letter, Scene, filled, publish, redrive, scene_in

pytestmark = pytest.mark.slow

LETTERS = (
    Letter(number=1, headers={"x-tenant": "acme"}),
    Letter(number=2, type=None),
    Letter(number=3, queue="bills", error=None),
)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database that is only read."""
    return filled(tmp_path_factory.mktemp("stored"), LETTERS)


@pytest.fixture
def database(tmp_path: Path) -> str:
    return filled(tmp_path, LETTERS)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with scene_in(tmp_path) as made:
        yield made


def test_a_rule_says_how_often_it_is_looked_at(database: str) -> None:
    on = redrive("dlq", "auto-retry", "on", "--first", "1s", "--max", "2s", "--attempts", "1", "--database", database)
    assert on.out == (
        "Auto-retry is on for everything: 1 attempt, the first after 1s, at most 2s apart; checked every 30s by "
        "`redrive serve` or `redrive collect --auto-retry`.\n"
    )
    assert "every 30s" in redrive("dlq", "auto-retry", "--help").out


def test_an_audit_in_which_nothing_matches_is_not_an_empty_one(database: str) -> None:
    assert redrive("dlq", "audit", "--database", database).err == "Nothing was done yet.\n"
    redrive("dlq", "delete", LETTERS[0].id, "--yes", "--database", database)
    by_nobody = redrive("dlq", "audit", "--by", "nobody", "--database", database)
    assert (by_nobody.code, by_nobody.err) == (0, "No entries match.\n")
    unknown = redrive("dlq", "audit", "--action", "letters.delete", "--database", database)
    assert unknown.err == (
        "No entries match.\nThere is no entry with the action letters.delete; did you mean `letters.deleted`?\n"
    )


def test_what_a_role_does_not_see_is_shown_as_hidden_with_its_size(stored: str) -> None:
    viewer = redrive("dlq", "show", LETTERS[0].id, "--as-role", "viewer", "--database", stored)
    assert f"body, {len(LETTERS[0].body)} B (hidden from this role)\n" in viewer.out
    assert "(empty)" not in viewer.out
    (header,) = [line for line in viewer.out.splitlines() if line.startswith("x-tenant")]
    assert header.split() == ["x-tenant", "-", "(hidden)"]
    operator = redrive("dlq", "show", LETTERS[0].id, "--as-role", "operator", "--database", stored)
    assert f"body, {len(LETTERS[0].body)} B\n" in operator.out
    (header,) = [line for line in operator.out.splitlines() if line.startswith("x-tenant")]
    assert header.split() == ["x-tenant", "text", "acme"]


@pytest.mark.parametrize("verb", ["resolve", "ignore"])
def test_what_is_said_of_a_group_for_good_needs_a_reason_and_the_option_is_named(verb: str, stored: str) -> None:
    ran = redrive("dlq", "groups", verb, "orders-TimeoutError", "--database", stored)
    assert ran.code == 2
    assert "--why" in ran.err


def test_the_column_of_types_has_types_alone(stored: str) -> None:
    lines = redrive("dlq", "list", "--oldest-first", "--database", stored).out.splitlines()
    assert "OrderPlaced" in lines[1]
    assert "orders.new" not in lines[2]  # its routing key is no type


def test_what_is_not_there_is_named_with_the_database(stored: str) -> None:
    path = stored.removeprefix("sqlite:///")
    for arguments, noun in (
        (("show", "nothing"), "dead letter nothing"),
        (("groups", "show", "nothing"), "group nothing"),
        (("operations", "show", "nothing"), "operation nothing"),
    ):
        ran = redrive("dlq", *arguments, "--database", stored)
        assert ran.code == 2
        assert f"there is no {noun} in " in ran.err
        assert path in ran.err


@pytest.mark.parametrize(
    ("arguments", "question"),
    [
        (("delete",), "Delete for good 2 dead letters?"),
        (("resolve", "--resolution", "old"), "Resolve 2 dead letters?"),
    ],
)
def test_with_nobody_to_ask_the_question_says_how_many(arguments: tuple[str, ...], question: str, stored: str) -> None:
    ran = redrive("dlq", *arguments, "--filter", "queue:orders", "--database", stored)
    assert ran.code == 2
    assert ran.err == f"{question} Nothing was changed: no terminal to ask on; add --yes.\n"


def test_what_is_asked_for_by_its_id_and_not_sent_is_named_and_a_finding(scene: Scene) -> None:
    scene.park(2)
    scene.collect()
    first, second = (one["id"] for one in scene.letters())
    assert scene.run("dlq", "retry", first).code == 0
    again = scene.run("dlq", "retry", first)
    assert again.code == 1
    assert f"warning: {first} is left alone: it is retrying" in again.err
    both = scene.run("dlq", "retry", first, second)
    assert (both.code, both.out) == (1, "1 of 1 dead letter sent.\n")
    assert f"warning: {first} is left alone: it is retrying" in both.err
    assert second not in both.err
    assert scene.broker.depths() == {"orders": 2}
    by_filter = scene.run("dlq", "redrive", "--all", "--yes")
    assert by_filter.code == 0  # nobody named one


def test_the_same_request_again_leaves_nothing_alone(scene: Scene) -> None:
    scene.park(1)
    scene.collect()
    (letter,) = scene.letters()
    arguments = ("dlq", "redrive", letter["id"], "--idempotency-key", "k", "--yes")
    assert [scene.run(*arguments).code, scene.run(*arguments).code] == [0, 0]
    assert scene.broker.depths() == {"orders": 1}


def test_a_stopped_queue_names_the_command_that_goes_on(scene: Scene) -> None:
    scene.park(1)
    scene.collect()
    assert scene.run("dlq", "return", "--all", "--yes").code == 0
    command = "redrive collect --resume-queue orders.parked"
    (queue,) = [
        one for one in scene.run("dlq", "queues", "--format", "json").json["queues"] if one["dlq"] == "orders.parked"
    ]
    assert queue["stopped"].endswith(command)
    assert command in scene.collect().err


def test_signs_of_a_main_queue_are_parted_by_a_comma(scene: Scene) -> None:
    publish(scene.broker.url, "", "orders", 1)
    ran = scene.run("collect", "--match", "orders", "--once")
    assert "as main queues do, and gets new messages from exchange shop" in ran.err


def test_redrives_are_counted_in_words_that_agree(scene: Scene) -> None:
    scene.park(1)
    scene.collect()
    (letter,) = scene.letters()
    scene.run("dlq", "retry", letter["id"])
    assert "redriven   1 time, 0 came back\n" in scene.run("dlq", "show", letter["id"]).out


def test_junk_is_refused_with_what_it_lacks(tmp_path: Path, database: str) -> None:
    junk = tmp_path / "junk.jsonl"
    junk.write_text(json.dumps({"a": 1}) + "\n")
    ran = redrive("dlq", "import", str(junk), "--database", database)
    assert ran.code == 2
    assert "None" not in ran.err
    assert "does not say its format" in ran.err


def test_an_older_broker_is_told_which_shape_to_take(tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text("queues:\n  orders: {retry: {shape: native, min: 1s, max: 1m, attempts: 3}}\n")
    ran = redrive("compile", str(file), "--for", "4.0")
    assert ran.code == 2
    assert "below" not in ran.err
    assert "declare the queue with the shape ladder" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("collect", "--match", "orders.parked", "--once"),
        ("dlq", "peek", "orders.parked"),
        ("dlq", "retry", "ID"),
        ("dlq", "redrive", "--all", "--yes"),
    ],
    ids=" ".join,
)
def test_a_broker_that_does_not_let_in_is_told_the_same_way_everywhere(
    scene: Scene, arguments: tuple[str, ...]
) -> None:
    scene.park(1)
    scene.collect()
    (letter,) = scene.letters()
    arguments = tuple(letter["id"] if one == "ID" else one for one in arguments)
    host = scene.broker.url.split("@")[1].split("/")[0]
    stranger = scene.run(*arguments, "--url", f"amqp://guest:secret-word@{host}/")
    assert stranger.code == 2
    assert stranger.err == f"error: {host} does not accept user guest with this password; check --url\n"
    lost = scene.run(*arguments, "--url", f"amqp://guest:guest@{host}/nowhere")
    if arguments[1:] != ("redrive", "--all", "--yes"):  # that asks its database first, which has nothing of this vhost
        assert lost.err == f"error: {host} has no vhost nowhere; create it, or check --url\n"


def test_apply_says_where_it_looked_for_the_management_api_and_how_to_say_another(scene: Scene) -> None:
    nowhere = ("--management-url", "http://127.0.0.1:1")
    asked = scene.run("apply", scene.file, *nowhere)
    assert "does not answer at http://127.0.0.1:1: connection refused; check --management-url" in asked.err
    done = scene.run("apply", scene.file, *nowhere, "--yes")
    assert "does not answer at http://127.0.0.1:1: connection refused; check --management-url" in done.out
    no = scene.run("apply", scene.file, *nowhere, typed=b"n\n", is_terminal=True)
    assert (no.code, no.err.endswith("Nothing was changed.\n")) == (2, True)
    ended = scene.run("apply", scene.file, *nowhere, typed=b"", is_terminal=True)
    assert (ended.code, ended.err.endswith("Nothing was changed.\n")) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("colect",), "there is no command colect; did you mean `collect`? see: redrive --help"),
        (("dlq", "lst"), "there is no command lst; did you mean `list`? see: redrive dlq --help"),
        (
            ("dlq", "groups", "resolv", "x"),
            "there is no command resolv; did you mean `resolve`? see: redrive dlq groups --help",
        ),
        (("token", "crate"), "there is no command crate; did you mean `create`? see: redrive token --help"),
        (("dlq", "edit", "x"), "missing option '--why'; see: redrive dlq edit --help"),
        (("dlq", "delete", "--database", "DB"), "say which dead letters: IDs, --queue Q, --group ID"),
    ],
)
def test_what_is_typed_wrong_is_told_in_a_line(arguments: tuple[str, ...], error: str, stored: str) -> None:
    ran = redrive(*(stored if one == "DB" else one for one in arguments))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {error}")
    assert ran.err.count("\n") == 1
