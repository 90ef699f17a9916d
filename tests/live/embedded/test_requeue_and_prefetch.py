"""Requeue with a TTL and the prefetch that a channel's consumers share, asked of both brokers side by side."""

import time
from itertools import product
from typing import Any

import pika
import pytest
from rig.brokers import Vhost

from tests.live.embedded.side_by_side import Wait, listen, on_both

TTL_S = 0.4


def give_back_with_a_ttl(connection: Any, wait: Wait) -> dict[str, Any]:
    """What was delivered, how it died, and what is left, for every way back: in time and too late."""
    seen: dict[str, Any] = {}
    admin = connection.channel()
    admin.confirm_delivery()
    for held_s in (0.0, 2 * TTL_S):
        cases: dict[str, Any] = {}
        for kind, how in product(("classic", "quorum"), ("nack", "reject", "close")):
            case = f"{kind} {how} after {held_s} s"
            table = {"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{case} dead"}
            admin.queue_declare(case, durable=True, arguments=table)
            admin.queue_declare(f"{case} dead")
            channel, got = connection.channel(), list[Any]()
            channel.basic_qos(prefetch_count=1)
            channel.basic_consume(case, lambda *one, got=got: got.append(one[1].redelivered), consumer_tag="t")
            cases[case] = (how, channel, got)
        for case in cases:
            admin.basic_publish("", case, b"m", pika.BasicProperties(expiration=str(round(TTL_S * 1000))))
        listen(connection, 0.05)
        wait(held_s)
        for how, channel, _ in cases.values():
            match how:
                case "nack":
                    channel.basic_nack(1)
                case "reject":
                    channel.basic_reject(1)
                case _:
                    channel.close()
        listen(connection, 0.05)
        for _, channel, _ in cases.values():
            if channel.is_open:
                channel.close()
        wait(TTL_S * 1.5)
        for case, (_, _, got) in cases.items():
            method, properties, _ = admin.basic_get(f"{case} dead", auto_ack=True)
            left = admin.queue_declare(case, passive=True).method.message_count
            deaths = [] if method is None else [(one["reason"], one["count"]) for one in properties.headers["x-death"]]
            seen[case] = (got, deaths, left)
    return seen


@pytest.mark.live
def test_what_went_straight_to_a_consumer_expires_after_it_came_back(vhost: Vhost) -> None:
    real, embedded = on_both(vhost, give_back_with_a_ttl)
    assert {(tuple(deaths), left) for _, deaths, left in real.values()} == {((("expired", 1),), 0)}
    assert embedded == real


def share_a_prefetch(connection: Any, wait: Wait) -> dict[str, Any]:
    """The order of turns in one queue; own limits beside the shared one; what ends it."""
    seen: dict[str, Any] = {}
    admin = connection.channel()
    admin.confirm_delivery()

    def turns(name: str, shared: int, limits: tuple[int, ...], *, fetched: int = 0) -> str:
        channel, got = connection.channel(), list[tuple[str, int]]()
        admin.queue_declare(name)
        admin.queue_declare(f"{name} fetched")
        for number, limit in enumerate(limits):
            channel.basic_qos(prefetch_count=limit)
            channel.basic_consume(
                name, lambda *one: got.append((one[1].consumer_tag, one[1].delivery_tag)), consumer_tag=str(number)
            )
        for _ in range(fetched):
            admin.basic_publish("", f"{name} fetched", b"m")
            channel.basic_get(f"{name} fetched")
        channel.basic_qos(prefetch_count=shared, global_qos=True)
        for _ in range(30):
            admin.basic_publish("", name, b"m")
        for acked in range(15):
            deadline = time.monotonic() + 0.5
            while len(got) < acked + shared and time.monotonic() < deadline:  # as much as it may hold, if that comes
                connection.process_data_events(time_limit=0.02)
            if acked == len(got):
                break
            channel.basic_ack(got[acked][1])
        listen(connection, 0.1)  # what the last ack made room for; 4.3, which shares no limit, may still be sending
        channel.close()
        return "".join(tag for tag, _ in got)

    for shared in (1, 2, 5):
        seen[f"shared {shared}"] = turns(f"s{shared}", shared, (0, 0, 0))
        seen[f"shared {shared} and own limits"] = turns(f"o{shared}", shared, (1, 2, 0))
        seen[f"shared {shared} and one fetched"] = turns(f"g{shared}", shared, (0, 0), fetched=1)
    wait(0.0)
    return seen


@pytest.mark.live
def test_consumers_take_turns_under_a_shared_prefetch(vhost: Vhost) -> None:
    real, embedded = on_both(vhost, share_a_prefetch)
    if vhost.profile != "4.3":
        assert real["shared 1"].startswith("012012")
    assert embedded == real


def wait_without_acks(connection: Any, wait: Wait) -> list[Any]:
    """A consumer without acks beside one whose unacked messages use the shared prefetch up."""
    admin, channel = connection.channel(), connection.channel()
    admin.confirm_delivery()
    got: list[str] = []
    for name in ("acks", "free"):
        admin.queue_declare(name)
    channel.basic_qos(prefetch_count=2, global_qos=True)
    for name in ("free", "acks"):
        channel.basic_consume(name, lambda *one: got.append(one[1].consumer_tag), name == "free", consumer_tag=name)
    for name in ("free", "free", "free", "acks", "acks", "acks", "free"):
        admin.basic_publish("", name, b"m")
        listen(connection, 0.03)
    before = list(got)
    channel.basic_qos(prefetch_count=7)  # for each consumer: ends the shared one
    listen(connection, 0.1)
    wait(0.0)
    return [before, sorted(got)]


@pytest.mark.live
def test_a_consumer_without_acks_waits_for_the_shared_prefetch_and_one_for_each_ends_it(vhost: Vhost) -> None:
    real, embedded = on_both(vhost, wait_without_acks)
    assert real[0][-1] == ("free" if vhost.profile == "4.3" else "acks")
    assert embedded == real
