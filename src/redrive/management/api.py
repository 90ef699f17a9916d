"""A client of RabbitMQ's management API: reads its version, queues, bindings and policies. It changes nothing.

    async with Management(parse_management_url("http://guest:guest@localhost:15672")) as management:
        async for queue in management.queues("/"): ...

Lists come page by page, so ten thousand queues cost no more memory than five hundred.
"""

import ssl
from collections.abc import AsyncIterator
from typing import Any

from redrive.management.endpoints import ManagementEndpoint
from redrive.management.errors import ManagementDenied, ManagementFailed
from redrive.management.http_requests import TIMEOUT_S, HttpRequests
from redrive.management.queues import COLUMNS, QueueInfo, read_queue
from redrive.topology import Arguments, Binding, DestinationType, Policy, PolicyMatcher

_PAGE_SIZE = 500  # the most that RabbitMQ gives
_PAGES_MAX = 2_000


class Management:
    """A client of one broker's management API. Every call raises `ManagementError`."""

    def __init__(
        self, endpoint: ManagementEndpoint, *, tls: ssl.SSLContext | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.endpoint = endpoint
        self._http = HttpRequests(endpoint, tls=tls, timeout_s=timeout_s)

    async def __aenter__(self) -> "Management":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection."""
        await self._http.close()

    async def version(self) -> str:
        """RabbitMQ's own version: "4.0.5"."""
        overview = await self._http.get(["overview"])
        found = overview.get("rabbitmq_version") if isinstance(overview, dict) else None
        if not isinstance(found, str):
            raise ManagementFailed(
                self.endpoint.address, path="/api/overview", status=200, detail="it names no rabbitmq_version"
            )
        return found

    async def cluster_name(self) -> str:
        """The name of the broker's cluster, as AMQP gives it too. Empty if there is none."""
        overview = await self._http.get(["overview"])
        found = overview.get("cluster_name") if isinstance(overview, dict) else None
        return found if isinstance(found, str) else ""

    async def bindings(self, vhost: str) -> tuple[Binding, ...]:
        """The bindings of a vhost, without those that every queue has to the default exchange."""
        shown = await self._http.get(["bindings", vhost])
        found = (_read_binding(one) for one in (shown if isinstance(shown, list) else []))
        return tuple(one for one in found if one is not None)

    async def queues(self, vhost: str) -> AsyncIterator[QueueInfo]:
        """Every queue of a vhost, by name. One declared or deleted meanwhile may or may not be among them."""
        seen: set[str] = set()
        for number in range(1, _PAGES_MAX + 1):
            query = {"page": str(number), "page_size": str(_PAGE_SIZE), "columns": COLUMNS, "sort": "name"}
            try:
                page = await self._http.get(["queues", vhost], query)
            except ManagementFailed as error:
                if error.status == 400 and number > 1:  # fewer pages than a moment ago
                    return
                raise
            if page is None:
                raise ManagementFailed(
                    self.endpoint.address, path="/api/queues", status=404, detail=f"there is no vhost {vhost}"
                )
            items = page.get("items") if isinstance(page, dict) else None
            for shown in items if isinstance(items, list) else []:
                queue = read_queue(shown)
                # A deletion shifts the pages: the last queue of one may be the first of the next.
                if queue is not None and queue.name not in seen:
                    seen.add(queue.name)
                    yield queue
            if not isinstance(page, dict) or number >= int(page.get("page_count", 0)):
                return

    async def queue(self, vhost: str, name: str) -> QueueInfo | None:
        """One queue, None if there is none of the name."""
        return read_queue(await self._http.get(["queues", vhost, name]))

    async def policies(self, vhost: str) -> tuple[Policy, ...]:
        """The policies and operator policies of a vhost. Those a user may not see are left out."""
        found: list[Policy] = []
        for path, operator in (("policies", False), ("operator-policies", True)):
            try:
                shown = await self._http.get([path, vhost])
            except ManagementDenied as error:
                if error.status == 401:
                    raise
                continue
            for one in shown if isinstance(shown, list) else []:
                policy = _read_policy(one, operator=operator)
                if policy is not None:
                    found.append(policy)
        return tuple(found)

    async def policy_matcher(self, vhost: str) -> PolicyMatcher:
        """The same as a `PolicyMatcher`, which knows the policies of each queue."""
        return PolicyMatcher(await self.policies(vhost))


def _read_binding(shown: Any) -> Binding | None:
    """A binding from the API's JSON; None for the default exchange's own bindings, and for what is no binding."""
    if not isinstance(shown, dict) or not shown.get("source"):
        return None
    kind = shown.get("destination_type")
    if kind not in tuple(DestinationType):
        return None
    arguments = shown.get("arguments")
    return Binding(
        source=str(shown["source"]),
        destination=str(shown.get("destination", "")),
        destination_type=DestinationType(kind),
        routing_key=str(shown.get("routing_key", "")),
        vhost=str(shown.get("vhost", "/")),
        # Erlang writes an empty object as an empty list.
        arguments=Arguments(arguments if isinstance(arguments, dict) else {}),
    )


def _read_policy(shown: Any, *, operator: bool) -> Policy | None:
    """A policy from the API's JSON; None for what is no policy."""
    if not isinstance(shown, dict) or not isinstance(shown.get("name"), str):
        return None
    definition = shown.get("definition")
    priority = shown.get("priority", 0)
    return Policy(
        name=shown["name"],
        vhost=str(shown.get("vhost", "/")),
        pattern=str(shown.get("pattern", "")),
        definition=Arguments(definition if isinstance(definition, dict) else {}),
        apply_to=str(shown.get("apply-to", "all")),
        priority=priority if isinstance(priority, int | float) else 0,
        operator=operator,
    )
