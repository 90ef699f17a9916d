"""A retry ladder of half an hour and more, climbed in virtual time by unmodified clients of three libraries.

How long that takes in real time is measured by bench/embedded.py.
"""

import pytest
from rig.ladder_clients import CLIMBS, DELAYS_S, ORDER, PARKED, QUEUES

from redrive.testing import ThreadedBroker


@pytest.mark.parametrize("client", CLIMBS)
@pytest.mark.parametrize(
    "profile",
    [pytest.param(name, marks=pytest.mark.rabbitmq(profile=name, time="automatic")) for name in ("3.10", "4.0", "4.3")],
)
def test_four_failures_on_a_ladder_of_36_minutes_park_the_message(
    broker: ThreadedBroker, profile: str, client: str
) -> None:
    CLIMBS[client](broker.url)

    assert broker.profile == profile
    life = broker.life(ORDER)
    attempts = [(hop.at_ms - life[0].at_ms) / 1000 for hop in life if hop.rule == "delivered"]
    assert attempts == [0, 30, 330, 2130]
    assert [str(hop) for hop in life if hop.rule == "died"] == [
        f"expired in orders.wait.{delay_s}s after {delay_s} s → orders" for delay_s in DELAYS_S
    ]
    assert [(place.queue, place.state) for place in broker.whereabouts(ORDER)] == [(PARKED, "ready")]
    assert broker.depths() == {name: int(name == PARKED) for name in QUEUES}
