"""The two ends of an AMQP connection."""

from enum import Enum


class Role(Enum):
    """Which end of the conversation: the application's, or the broker's."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def peer(self) -> "Role":
        return Role.SERVER if self is Role.CLIENT else Role.CLIENT
