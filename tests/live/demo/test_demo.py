"""`redrive demo --url` on a real RabbitMQ: the same ends as on the embedded broker, and nothing left behind."""

import pytest
from rig.brokers import Vhost

from tests.unit.demo.process import ENDS, SUM, ends_told, run_demo


@pytest.mark.live(versions=("4.3",))
def test_on_a_real_broker_the_demo_ends_the_same_way_and_leaves_nothing_behind(vhost: Vhost) -> None:
    before = {exchange["name"] for exchange in vhost.management.get("exchanges", vhost.name)}
    code, output, errors = run_demo("--once", "--url", vhost.amqp_url)
    assert (code, errors) == (0, "")
    assert ends_told(output) == ENDS
    assert output.splitlines()[-1] == SUM
    assert vhost.management.get("queues", vhost.name) == []
    assert {exchange["name"] for exchange in vhost.management.get("exchanges", vhost.name)} == before


@pytest.mark.live(versions=("3.10",))
def test_the_ladder_of_the_demo_is_right_on_the_oldest_version_too(vhost: Vhost) -> None:
    code, output, errors = run_demo("--once", "--url", vhost.amqp_url)
    assert (code, errors) == (0, "")
    assert ends_told(output) == ENDS
