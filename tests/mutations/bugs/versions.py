"""Seeded bugs of the profiles: one version does what only another does."""

from tests.mutations.mutation import Mutation

AREA = "Versions"

BUGS = (
    Mutation(
        name="nack-counts-on-4-3",
        area=AREA,
        file="engine/profiles.py",
        old="failing_requeues=frozenset({SettledBy.REJECT, SettledBy.CHANNEL_CLOSED}),",
        new="failing_requeues=_EVERY_CAUSE,",
        sees="4.3: nacks use the delivery limit up.",
    ),
    Mutation(
        name="negative-limit-is-none-on-3-10",
        area=AREA,
        file="engine/profiles.py",
        old="negative_limit_is_none=False,",
        new="negative_limit_is_none=True,",
        sees="3.10: a delivery limit of -1 is harmless; the real one destroys messages at the first return.",
    ),
    Mutation(
        name="default-limit-on-3-10",
        area=AREA,
        file="engine/profiles.py",
        old="delivery_limit_default=None,",
        new="delivery_limit_default=20,",
        sees="3.10: a quorum queue without a limit loses a message after 21 deliveries.",
    ),
    Mutation(
        name="client-x-death-ignored-on-3-10",
        area=AREA,
        file="engine/profiles.py",
        old="deaths_in_headers=True,",
        new="deaths_in_headers=False,",
        sees="3.10: a republished message with its x-death starts at count 1.",
    ),
    Mutation(
        name="counters-stay-behind-on-4-3",
        area=AREA,
        file="engine/profiles.py",
        old="carries_everything=True,",
        new="carries_everything=False,",
        sees="4.3: failed deliveries are forgotten when a message is dead-lettered.",
    ),
    Mutation(
        name="global-prefetch-on-4-3",
        area=AREA,
        file="engine/profiles.py",
        old="global_prefetch=False,",
        new="global_prefetch=True,",
        sees="4.3: a global prefetch is shared by the consumers of a channel.",
    ),
    Mutation(
        name="cc-kept-on-3-10",
        area=AREA,
        file="engine/profiles.py",
        old="dead_letter_key_drops_cc=True,",
        new="dead_letter_key_drops_cc=False,",
        sees="3.10: a dead letter with a key of its queue's still has its CC header.",
    ),
    Mutation(
        name="requeue-to-the-back-everywhere",
        area=AREA,
        file="engine/queues.py",
        old="to_back = profile.requeues_to_back_without_limit and",
        new="to_back =",
        sees="4.x: a quorum queue without a limit puts what is nacked at its end, as 3.10 does.",
    ),
    Mutation(
        name="zero-count-shown-on-4-x",
        area=AREA,
        file="engine/queues.py",
        old="if redelivered or (fetched and profile.shows_zero_count):",
        new="if redelivered or fetched:",
        sees="4.0: the first basic.get of a message shows x-delivery-count 0.",
    ),
    Mutation(
        name="delayed-retry-before-4-3",
        area=AREA,
        file="engine/queue_settings.py",
        old="delayed = quorum and profile.delayed_retry",
        new="delayed = quorum",
        sees="3.10 and 4.0: x-delayed-retry-… works; the real ones take the arguments and do nothing.",
    ),
)
