"""What a restart leaves: durable queues and exchanges, the bindings between them, and the messages that were on disk.

A classic queue keeps persistent messages, a quorum queue all of them; deadlines stay as they were.
"""

from redrive.embedded.engine import Engine


def forget_what_is_not_durable(engine: Engine) -> None:
    """Take away what a restarted broker does not have. All clients must be gone."""
    for vhost in engine.vhosts.values():
        for queue in list(vhost.queues.values()):
            if not queue.durable:
                vhost.delete_queue(queue, why="not durable, and the broker restarted")
            elif not queue.is_quorum:
                queue.keep(lambda entry: entry.message.persistent, why="not persistent, and the broker restarted")
        for exchange in list(vhost.exchanges.values()):
            if not exchange.durable:
                vhost.remove_exchange(exchange)
    engine.take_effects()
