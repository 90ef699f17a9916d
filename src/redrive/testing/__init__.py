"""A pytest plugin: RabbitMQ for a test in milliseconds, with its time in the test's hands.

    def test_an_order_is_parked_after_four_runs(broker):
        run_my_app(broker.url)                    # any AMQP client, unmodified
        broker.advance("35m30s")
        assert broker.whereabouts("order-7")[0].queue == "orders.parked"

Switch it on with `pytest_plugins = ["redrive.testing"]` in a conftest.py, or `-p redrive.testing`. The broker runs in a
thread of its own, so tests and applications may be synchronous or asynchronous. `@pytest.mark.rabbitmq(profile="3.10",
time="automatic", definitions="redrive.yaml")` says which broker a test wants.

For simulations, where broker and clients share one event loop and everything must happen the same way every time:
`run_in_virtual_time` (`virtual_loop`).
"""

from redrive.testing.plugin import ThreadedBroker, broker, pytest_configure
from redrive.testing.virtual_loop import Stuck, VirtualLoop
from redrive.testing.virtual_loop import run as run_in_virtual_time

__all__ = ["Stuck", "ThreadedBroker", "VirtualLoop", "broker", "pytest_configure", "run_in_virtual_time"]
