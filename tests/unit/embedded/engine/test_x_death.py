"""x-death: what a dead letter's headers say, and which cycles are cut."""

import pytest

from redrive import wire
from redrive.embedded.engine import GetOk
from tests.unit.embedded.engine_rig import START_MS, Rig, every_kind, every_profile, headers_of, reject, taken


@every_profile
def test_a_reject_loop_counts_and_is_never_dropped(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("main", dead_letter_exchange="", dead_letter_routing_key="retry")
    rig.queue("retry", message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="main")
    rig.publish("main", "m", message_id="m")
    for _ in range(30):
        reject(rig, "main")
        rig.pass_time(1)
    assert rig.deaths("main") == [("retry", "expired", 30), ("main", "rejected", 30)]


@every_profile
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_circle_by_ttl_alone_is_dropped_and_its_life_says_so(profile: str, kind: str) -> None:
    rig = Rig(profile)
    rig.queue("a", kind, message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="b")
    rig.queue("b", kind, message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="a")
    rig.publish("a", "m", message_id="m")
    rig.pass_time(10)
    assert rig.engine.whereabouts("m") == []
    texts = [str(hop) for hop in rig.engine.life("m")]
    assert texts[1] == "expired in a after 1 s → b"
    assert texts[-1] == "dropped: automatic cycle a→b→a"


@pytest.mark.parametrize(("profile", "count"), [("3.10", 2), ("4.0", 1), ("4.3", 1)])
def test_only_3_10_believes_an_x_death_that_a_client_brings(profile: str, count: int) -> None:
    rig = Rig(profile)
    rig.queue("dead")
    rig.queue("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    rig.publish("q", "m")
    reject(rig, "q")
    got = rig.got("dead", no_ack=True)
    assert got is not None
    rig.channel.publish("", "q", got.header, b"again")
    reject(rig, "q")
    assert rig.deaths("dead") == [("q", "rejected", count)]


def test_3_10_keeps_only_the_first_entry_in_its_place() -> None:
    rig = Rig("3.10")
    for number in range(5):
        rig.queue(f"h{number}", dead_letter_exchange="", dead_letter_routing_key=f"h{number + 1}")
    rig.queue("h5")
    rig.publish("h0", "m")
    for number in range(5):
        reject(rig, f"h{number}")
    assert [queue for queue, _, _ in rig.deaths("h5")] == ["h4", "h2", "h0", "h1", "h3"]


@pytest.mark.parametrize("profile", ["4.0", "4.3"])
def test_the_last_deaths_exchange_is_the_latest_and_not_that_of_the_first_of_its_kind(profile: str) -> None:
    rig = Rig(profile)
    rig.queue("q", dead_letter_exchange="", dead_letter_routing_key="q")
    rig.channel.bind_queue("q", "amq.topic", "k", {})
    rig.publish("k", "m", exchange="amq.topic")
    reject(rig, "q")
    reject(rig, "q")
    got = rig.got("q")
    assert got is not None
    headers = wire.Properties(got.header).headers
    assert headers["x-death"][0]["exchange"] == "amq.topic"
    assert (headers["x-first-death-exchange"], headers["x-last-death-exchange"]) == ("amq.topic", "")


def rejected_then_expired(profile: str) -> tuple[Rig, GetOk]:
    """A message rejected in q, rejected in dead, expired in q, now from dead: no automatic circle."""
    rig = Rig(profile)
    rig.queue("dead", dead_letter_exchange="", dead_letter_routing_key="q")
    rig.queue("q", message_ttl=10_000, dead_letter_exchange="", dead_letter_routing_key="dead")
    rig.publish("q", "m")
    reject(rig, "q")
    rig.pass_time(5)
    reject(rig, "dead")
    rig.pass_time(10)
    return rig, taken(rig, "dead")


@every_profile
def test_two_reasons_in_one_queue_are_two_deaths_and_the_latest_is_first(profile: str) -> None:
    _, got = rejected_then_expired(profile)
    deaths = [(death["queue"], death["reason"], death["count"]) for death in headers_of(got)["x-death"]]
    assert deaths[0] == ("q", "expired", 1)
    assert sorted(deaths[1:]) == [("dead", "rejected", 1), ("q", "rejected", 1)]


@every_profile
def test_the_first_death_stays_the_first_and_4_x_names_the_last_too(profile: str) -> None:
    _, got = rejected_then_expired(profile)
    headers = headers_of(got)
    assert [headers[f"x-first-death-{what}"] for what in ("queue", "reason", "exchange")] == ["q", "rejected", ""]
    last = [headers.get(f"x-last-death-{what}") for what in ("queue", "reason", "exchange")]
    assert last == ([None] * 3 if profile == "3.10" else ["q", "expired", ""])


@every_profile
def test_a_death_counted_again_comes_first_and_keeps_the_time_of_the_first_one(profile: str) -> None:
    rig, got = rejected_then_expired(profile)
    rig.channel.reject(got.delivery_tag, requeue=False)
    reject(rig, "q")
    death = headers_of(taken(rig, "dead"))["x-death"][0]
    assert (death["queue"], death["reason"], death["count"]) == ("q", "rejected", 2)
    assert death["time"].timestamp() == START_MS // 1000


@every_profile
@every_kind
def test_a_dead_letter_has_no_expiration_any_more_and_its_death_remembers_it(profile: str, kind: str) -> None:
    rig = Rig(profile)
    rig.queue("dead", kind)
    rig.queue("q", kind, dead_letter_exchange="", dead_letter_routing_key="dead")
    rig.publish("q", "m", expiration="500")
    rig.pass_time(60)
    got = taken(rig, "dead")
    (death,) = headers_of(got)["x-death"]
    assert wire.Properties(got.header).expiration is None
    assert (death["reason"], death["original-expiration"]) == ("expired", "500")
    assert (death["exchange"], death["routing-keys"]) == ("", ["q"])


@pytest.mark.parametrize(("profile", "cc"), [("3.10", None), ("4.0", ["b"]), ("4.3", ["b"])])
def test_a_dead_letter_key_removes_cc_on_3_10_only(profile: str, cc: list[str] | None) -> None:
    rig = Rig(profile)
    for name in ("b", "dead"):
        rig.queue(name)
    rig.queue("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    rig.publish("q", "m", headers={"CC": ["b"]})
    reject(rig, "q")
    got = taken(rig, "dead")
    assert headers_of(got).get("CC") == cc
    assert headers_of(got)["x-death"][0]["routing-keys"] == ["q", "b"]
    assert rig.drain("b") == ["m"]  # the first copy; the dead letter goes by its queue's key alone
