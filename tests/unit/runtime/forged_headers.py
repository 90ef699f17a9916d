"""Headers of ours and of the broker that a publisher forged or copied."""

from typing import Any

from redrive.core import headers as names


def forged(queue: str) -> dict[str, Any]:
    """Everything we read, as it might be on another message: far along, not due, suspected, of another queue."""
    death = {"reason": "rejected", "count": 99, "exchange": "x", "routing-keys": ["another.key"]}
    return {
        names.RETRY_COUNT: 99,
        names.ATTEMPTS_BEFORE: 99,
        names.NOT_BEFORE: 4_000_000_000_000,
        names.DELIVERIES: 99,
        names.DEATHS_ALONE: 99,
        names.FIRST_SEEN: 1,
        names.MESSAGE_ID: "another",
        names.ORIGINAL_QUEUE: "another.queue",
        names.ORIGINAL_EXCHANGE: "another.exchange",
        names.ORIGINAL_ROUTING_KEY: "another.key",
        names.HISTORY: [{"number": 7, "at_ms": 1, "error": "another's"}],
        names.STRIPPED: {"expiration": "1"},
        names.FINAL_ERROR: "another's",
        names.FINAL_RETRY_COUNT: 99,
        names.REASON: "attempts",
        names.REDRIVEN_ID: "another-letter",
        names.REDRIVEN_COUNT: 3,
        names.DIGEST: "0123456789abcdef0123456789abcdef",
        names.DELIVERY_COUNT: 99,
        "x-acquired-count": 99,
        names.DEATHS: [
            {**death, "queue": f"{queue}.wait.30s", "reason": "expired"},
            {**death, "queue": "another.queue.retry.30s", "reason": "expired"},
            {**death, "queue": queue},
        ],
        "mine": "kept",
    }
