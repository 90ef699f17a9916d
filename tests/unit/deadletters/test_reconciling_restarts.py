"""After a restart of its broker a classic queue calls every message redelivered: what that may prove."""

from redrive.deadletters.collect.reconciliation import BatchContext, DeliveryIdentity, OpenBatch, Reconciled, reconcile

HOUR_MS = 3_600_000


def met_again(*, has_id: bool) -> Reconciled:
    """A batch of one was stored; now a message like it comes, redelivered, and the queue is empty."""
    batch = OpenBatch(id="batch", entries=((b"print", "letter"),), at_ms=0)
    given = BatchContext(
        requeues_to_front=True,
        is_complete=True,
        is_drained=True,
        is_first=True,
        now_ms=HOUR_MS,
        grace_ms=75_000,
    )
    return reconcile([DeliveryIdentity(fingerprint=b"print", redelivered=True, has_id=has_id)], [batch], given)


def test_a_message_without_id_may_be_a_twin_nobody_has_had_and_is_stored_as_a_copy() -> None:
    decided = met_again(has_id=False)
    assert (decided.known, decided.doubtful, decided.settled) == ((None,), {0: "letter"}, ("batch",))


def test_a_message_with_an_id_is_the_one_that_is_stored() -> None:
    decided = met_again(has_id=True)
    assert (decided.known, decided.doubtful, decided.settled) == (("letter",), {}, ("batch",))
