"""Which dead-letter queues belong to the queues of a token: as FILE declares, else by their names.

What a message says about itself never counts here.
"""

from redrive.admin.services import Services
from redrive.core import RedriveError
from redrive.records import glob_matcher, guess_failed_queue
from redrive.wiring import declared_owners


class DlqOwners:
    """Finds dead-letter queues in the store, and their owners in FILE. One per app."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._declared: dict[str, str] | None = None

    async def dlqs_of(self, queues: tuple[str, ...]) -> tuple[str, ...]:
        """The dead-letter queues of these queues, without those that `queues` name themselves.

        Raises `StoreUnavailable`.
        """
        if not queues:
            return ()
        declared = self._owners()
        known = {*await self._services.store.stats.dead_letter_queues(), *declared}
        is_theirs = glob_matcher(queues)
        # A name with a star would match other queues too.
        return tuple(
            dlq
            for dlq in sorted(known)
            if "*" not in dlq and not is_theirs(dlq) and is_theirs(declared.get(dlq) or guess_failed_queue(dlq))
        )

    def _owners(self) -> dict[str, str]:
        if self._declared is None:
            try:
                self._declared = declared_owners(self._services.connections)
            except RedriveError:
                self._declared = {}
        return self._declared
