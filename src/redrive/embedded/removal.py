"""A vhost's end: its queues with their messages, its exchanges, bindings and policies, and whoever was connected."""

from redrive.embedded.engine import Engine


def remove_vhost(engine: Engine, name: str) -> None:
    """Take a vhost away; nothing in it is dead-lettered. Raises KeyError where there is none."""
    gone = engine.vhosts[name]
    for connection in list(engine.connections):
        if connection.vhost is gone:
            engine.disconnect(connection)
    for queue in list(gone.queues.values()):
        gone.delete_queue(queue, why="its vhost was deleted")
    del engine.vhosts[name]
    engine.finish()
