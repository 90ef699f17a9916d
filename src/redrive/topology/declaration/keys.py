"""The keys of `redrive.yaml`, shared by its reader and its schema."""

TOP_KEYS = (
    "vhost",
    "broker",
    "database",
    "exchanges",
    "defaults",
    "queues",
    "services",
    "policies",
    "operator_policies",
)
EXCHANGE_KEYS = ("type", "durable", "auto_delete", "internal", "alternate", "arguments", "from")
DEFAULT_KEYS = ("type", "durable", "auto_delete", "arguments", "retry", "service", "pause_after", "auto_retry")
QUEUE_KEYS = ("from", *DEFAULT_KEYS)
AUTO_RETRY_KEYS = ("attempts", "first", "max", "settle")
BINDING_KEYS = ("key", "arguments")
POLICY_KEYS = ("pattern", "definition", "apply_to", "priority")
APPLY_TO = ("all", "queues", "exchanges", "classic_queues", "quorum_queues", "streams")
