"""A client's connection as the engine sees it: its user, its channels, its exclusive queues."""

from typing import TYPE_CHECKING

from redrive.embedded.engine.channels import Channel

if TYPE_CHECKING:
    from redrive.embedded.engine.engine import Engine
    from redrive.embedded.engine.queues import Queue
    from redrive.embedded.engine.vhosts import Vhost


class Connection:
    """One connection. `wants_cancel`: its client understands basic.cancel from the broker; `may_impersonate`: what it
    publishes may have anybody's user id."""

    def __init__(
        self, engine: "Engine", vhost: "Vhost", user: str, *, wants_cancel: bool, may_impersonate: bool = False
    ) -> None:
        self.engine = engine
        self.vhost = vhost
        self.user = user
        self.wants_cancel = wants_cancel
        self.may_impersonate = may_impersonate
        self.channels: dict[int, Channel] = {}
        self.exclusive: dict[int, Queue] = {}

    def open_channel(self, number: int) -> Channel:
        """A new channel under a free number."""
        channel = self.channels[number] = Channel(self, number)
        return channel

    def close(self) -> None:
        """Close the connection: its channels end, its exclusive queues are deleted."""
        for channel in list(self.channels.values()):
            channel.end()
        for queue in list(self.exclusive.values()):
            self.vhost.delete_queue(queue, why="its connection closed")
        self.engine.flush_dead_letters()

    def pause(self) -> None:
        """The client does not read fast enough: deliver no more to it."""
        for channel in self.channels.values():
            channel.paused = True

    def resume(self) -> None:
        """It reads again."""
        for channel in list(self.channels.values()):
            channel.paused = False
            channel.resume_consumers()
        self.engine.flush_dead_letters()
