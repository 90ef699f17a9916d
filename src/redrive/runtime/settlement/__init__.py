"""Decides what happens to a delivery whose handler has ended or will not run, carries it out at the broker, logs it.

`settler` decides and is the way in. `command_executor` carries out a shape's commands and acks nothing whose copy is
not confirmed; `detached_copies` does that with no task waiting for the confirm. `message_copies` builds a copy's
properties, `park_templates` those of parked copies that are alike; `isolated_publisher` sends copies to exchanges that
close channels. `retry_state` reads what a delivery's headers say about earlier attempts. `abandoned` requeues
deliveries whose handlers were cancelled; `internal_failures` counts our own failures over a message; `decision_log`
reports every decision as `runtime.decided`.
"""

from redrive.runtime.settlement.abandoned import AbandonedDeliveries
from redrive.runtime.settlement.command_executor import CopyPublishers
from redrive.runtime.settlement.isolated_publisher import IsolatedPublisher
from redrive.runtime.settlement.settler import BrokerFacts, Settler

__all__ = ["AbandonedDeliveries", "BrokerFacts", "CopyPublishers", "IsolatedPublisher", "Settler"]
