"""Seeded bugs of the broker's restart: what is still there."""

from tests.mutations.mutation import Mutation

AREA = "Restart"

BUGS = (
    Mutation(
        name="restart-loses-the-persistent",
        area=AREA,
        file="engine/engine.py",
        old="lambda entry: entry.message.persistent",
        new="lambda entry: False",
        sees="Persistent messages in durable classic queues are gone after a restart.",
    ),
    Mutation(
        name="restart-keeps-the-transient",
        area=AREA,
        file="engine/engine.py",
        old="lambda entry: entry.message.persistent",
        new="lambda entry: True",
        sees="Transient messages in durable classic queues survive a restart.",
    ),
    Mutation(
        name="restart-empties-quorum-queues",
        area=AREA,
        file="engine/engine.py",
        old="elif not queue.is_quorum:",
        new="else:",
        sees="A quorum queue loses its transient messages at a restart; the real one keeps everything.",
    ),
    Mutation(
        name="restart-keeps-passing-queues",
        area=AREA,
        file="engine/engine.py",
        old="if not queue.durable:",
        new="if False:",
        sees="Queues that are not durable survive a restart.",
    ),
    Mutation(
        name="restart-keeps-passing-exchanges",
        area=AREA,
        file="engine/engine.py",
        old="if not exchange.durable:",
        new="if False:",
        sees="Exchanges that are not durable survive a restart.",
    ),
    Mutation(
        name="dead-letters-become-transient",
        area=AREA,
        file="engine/messages.py",
        old="other.persistent = self.persistent",
        new="other.persistent = False",
        sees="A persistent message that was dead-lettered is gone after a restart.",
    ),
)
