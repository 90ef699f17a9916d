"""A small one of what `python -m tests.live.admin.two_instances` plays in full size, and its accounts."""

from collections.abc import Callable
from pathlib import Path

import pytest
from rig import Postgres, Vhost

from redrive.records import Status
from tests.live.admin.two_instances.accounts import Copy, Row, account
from tests.live.admin.two_instances.report import problems, summary
from tests.live.admin.two_instances.scene import Plan, play


@pytest.mark.live(versions=("4.3",), matrix=("3.10",))
def test_a_killed_instance_loses_nothing_and_the_other_goes_on(
    vhost: Vhost, own_postgres: Callable[[], Postgres], tmp_path: Path
) -> None:
    postgres = own_postgres()
    plan = Plan(messages=2_000, rate=50, seconds=10)
    outcome = play(
        plan,
        amqp_url=vhost.amqp_url,
        management_url=vhost.management_url,
        database=postgres.url(postgres.create_database("two")),
        folder=tmp_path,
    )
    told = summary(plan, outcome)
    assert problems(told, p95_ms_max=None) == []
    made = outcome.account
    assert (made.published, made.stored, made.sent + made.resolved) == (2_000, 2_000, 2_000)


def row(id: str, status: Status = Status.RETRYING, *, redrives: int = 1, is_copy: bool = False) -> Row:
    return Row(id=f"row of {id}", message_id=id, status=status, redrives=redrives, is_copy=is_copy)


def copy(id: str, *, is_marked: bool = False) -> Copy:
    return Copy(message_id=id, redriven_id=f"row of {id}", is_possible_duplicate=is_marked)


def test_a_message_is_in_its_queue_or_in_the_store() -> None:
    assert account(["a", "b"], ["b"], [row("a")], [copy("a")]).problems == []
    assert account(["a", "b"], [], [row("a")], [copy("a")]).problems == ["b is lost"]
    assert account(["a"], ["a"], [row("a")], [copy("a")]).problems == ["a is there 2 times, and nothing says so"]


def test_a_row_that_is_said_to_be_sent_has_one_copy() -> None:
    assert account(["a"], [], [row("a")], []).problems == ["a is said to be sent, and its copy is nowhere"]
    assert account(["a"], [], [row("a")], [copy("a")] * 2).problems == ["a was sent 2 times, and nothing says so"]
    assert account(["a"], [], [row("a", Status.PENDING)], [copy("a")]).problems == ["a is pending, and was sent"]
    resolved = row("a", Status.RESOLVED, redrives=0)
    assert account(["a"], [], [resolved], []).problems == []
    assert account(["a"], [], [resolved], [copy("a")]).problems == ["a was resolved unsent, and has a copy"]


def test_a_second_copy_is_only_for_what_was_in_doubt() -> None:
    copies = [copy("a"), copy("a", is_marked=True)]
    assert account(["a"], [], [row("a")], copies, doubted={"row of a"}).problems == []
    assert account(["a"], [], [row("a")], copies, doubted={"row of a"}).marked == 1
    assert account(["a"], [], [row("a")], copies).problems == ["a has a marked copy, and was never in doubt"]


def test_a_copy_of_nothing_is_found() -> None:
    assert account([], [], [], [copy("a")]).problems == ["a copy of row of a, which no dead letter is"]
