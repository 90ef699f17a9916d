"""What the unit tests know about counting is what the brokers do now."""

import os

import pytest
from rig.brokers import Vhost

from tests.live.runtime.recording import read_recorded, record, write_recorded


@pytest.mark.live
def test_a_failing_message_looks_as_it_did_when_it_was_recorded(vhost: Vhost) -> None:
    recorded = record(vhost.amqp_url)
    if os.environ.get("REDRIVE_RECORD", "") not in ("", "0"):
        write_recorded(vhost.profile, recorded)
    known = read_recorded(vhost.profile)
    assert [(one["scenario"], one["kind"]) for one in recorded] == [(one["scenario"], one["kind"]) for one in known]
    for now, then in zip(recorded, known, strict=True):
        assert now == then, f"{then['scenario']} on a {then['kind']} queue"
