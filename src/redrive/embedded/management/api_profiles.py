"""Where the three versions' management APIs answer differently; measured on 3.10.8, 4.0.5 and 4.3.6.

What the brokers themselves do differently is in the engine's profiles; this is only how they report it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiProfile:
    """One version's answers."""

    default_queue_type: str
    """What a vhost without one shows."""
    apply_to: tuple[str, ...]
    apply_to_choice: str
    """The end of the sentence that refuses another `apply-to`."""
    missing_exchange_is_bad_request: bool
    """PublisherMethods to an exchange that is not there: 400 with AMQP's text instead of 404."""
    missing_queue_is_named: bool
    """Getting from a queue that is not there: 404 with AMQP's text instead of "queue_not_found"."""
    described_definitions: bool
    """Definitions have an explanation and a format, and vhosts have metadata."""
    definitions_have_queue_type: bool
    """A queue's definition has a `type` beside its arguments."""
    exports_internal_exchanges: bool
    limits_are_a_map: bool
    """A vhost without limits shows {} in its definitions, not []."""
    missing_binding_ends_aborts_import: bool
    """A binding without its source or destination aborts an import; 3.10 silently leaves it out."""
    missing_vhost_is_explained: bool
    """An import into a missing vhost is refused with a sentence instead of a tuple."""
    policy_place: str
    """How an import's error names the policy it is about."""
    shows_quorum_details: bool
    """A quorum queue shows its delayed and dead-lettered messages and its limits (4.3)."""
    login_failed: str


API_PROFILES = {
    "3.10": ApiProfile(
        default_queue_type="undefined",
        apply_to=("queues", "exchanges", "all"),
        apply_to_choice="should be 'queues', 'exchanges' or 'all'",
        missing_exchange_is_bad_request=True,
        missing_queue_is_named=True,
        described_definitions=False,
        definitions_have_queue_type=False,
        exports_internal_exchanges=True,
        limits_are_a_map=False,
        missing_binding_ends_aborts_import=False,
        missing_vhost_is_explained=False,
        policy_place="({vhost}/{name})",
        shows_quorum_details=False,
        login_failed="Login failed",
    ),
    "4.0": ApiProfile(
        default_queue_type="classic",
        apply_to=("queues", "classic_queues", "quorum_queues", "streams", "exchanges", "all"),
        apply_to_choice="should be one of: 'queues', 'classic_queues',  'quorum_queues', 'streams', 'exchanges', or "
        "'all'",
        missing_exchange_is_bad_request=False,
        missing_queue_is_named=False,
        described_definitions=True,
        definitions_have_queue_type=False,
        exports_internal_exchanges=True,
        limits_are_a_map=False,
        missing_binding_ends_aborts_import=True,
        missing_vhost_is_explained=True,
        policy_place="({vhost}/{name})",
        shows_quorum_details=False,
        login_failed="Not_Authorized",
    ),
    "4.3": ApiProfile(
        default_queue_type="classic",
        apply_to=("queues", "classic_queues", "quorum_queues", "streams", "exchanges", "all"),
        apply_to_choice="should be one of: 'queues', 'classic_queues',  'quorum_queues', 'streams', 'exchanges', or "
        "'all'",
        missing_exchange_is_bad_request=False,
        missing_queue_is_named=False,
        described_definitions=True,
        definitions_have_queue_type=True,
        exports_internal_exchanges=False,
        limits_are_a_map=True,
        missing_binding_ends_aborts_import=True,
        missing_vhost_is_explained=True,
        policy_place='(vhost: "{vhost}" key: "{name}")',
        shows_quorum_details=True,
        login_failed="Not_Authorized",
    ),
}
"""By the profile's name."""
