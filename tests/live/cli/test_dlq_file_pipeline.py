"""The file pipeline's operations from the command line on real brokers: queues, peek, re-drive with a limit."""

import time
from pathlib import Path

import pytest
from rig import Vhost
from rig.dlq_operator import ROOT, WAIT_S_MAX, Operator

QUEUES = ("q.thumbnail", "q.thumbnail.retry", "q.thumbnail.dlq")


@pytest.mark.live(versions=("3.10", "4.3"))
def test_queues_peek_and_redrive_with_a_limit_to_the_retry_exchange(vhost: Vhost, tmp_path: Path) -> None:
    # The document's own file, with a delay that a test can wait for.
    file = tmp_path / "redrive.yaml"
    example = (ROOT / "examples" / "file-pipeline" / "redrive.yaml").read_text()
    file.write_text(example.replace("15s", "300ms"))
    operator = Operator(vhost, tmp_path)
    operator.fine("apply", str(file), "--yes")
    operator.publish("", "q.thumbnail", "a", "b", "c")
    operator.let_fail(str(file), "q.thumbnail", dlq="q.thumbnail.dlq", parked=3)

    until_s = time.monotonic() + WAIT_S_MAX
    while True:
        queues = {one["dlq"]: one for one in operator.json("dlq", "queues", "--file", str(file))["queues"]}
        if queues["q.thumbnail.dlq"]["messages"] == 3 or time.monotonic() > until_s:
            break
        time.sleep(0.5)
    assert len(queues) == 7
    assert (queues["q.thumbnail.dlq"]["queue"], queues["q.thumbnail.dlq"]["messages"]) == ("q.thumbnail", 3)

    for _ in range(3):
        seen = operator.json("dlq", "peek", "q.thumbnail.dlq", "--limit", "2")
        assert len(seen["messages"]) == 2
        assert seen["left"] == 1
        assert operator.depths("q.thumbnail.dlq") == {"q.thumbnail.dlq": 3}

    operator.fine("collect", str(file), "--once")
    assert operator.depths(*QUEUES) == {"q.thumbnail": 0, "q.thumbnail.retry": 0, "q.thumbnail.dlq": 0}
    letters = operator.letters()
    assert [one["queue"] for one in letters] == ["q.thumbnail"] * 3

    result = operator.json(
        *("dlq", "redrive", "--queue", "q.thumbnail.dlq", "--limit", "2", "--yes"),
        *("--to-exchange", "retry.{queue}", "--routing-key", "retry"),
    )
    assert (result["operation"]["sent"], result["operation"]["state"]) == (2, "done")
    # They wait out their delay once more, then they are back in the queue they failed in.
    operator.wait_depths({"q.thumbnail": 2, "q.thumbnail.retry": 0, "q.thumbnail.dlq": 0})
    copies = {str(one.properties.message_id): one for one in operator.taken("q.thumbnail")}
    sent = letters[:2]
    assert set(copies) == {one["message_id"] for one in sent}
    for one in sent:
        copy = copies[one["message_id"]]
        assert copy.properties.header("x-redriven-id") == one["id"]
        assert copy.properties.header("x-redriven-count") == 1
        assert copy.properties.header("x-redriven-by") == "ada"
        assert str(copy.properties.header("x-redriven-at")).endswith("Z")
    assert [one["status"] for one in operator.letters()] == ["retrying", "retrying", "pending"]
