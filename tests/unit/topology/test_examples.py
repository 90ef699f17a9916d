"""Each example is exactly its document: every exchange, queue, argument and binding spelled out, and nothing more."""

from typing import Any

import pytest

from redrive.topology import Compiled, Queue, read_definitions
from tests.unit.topology.example_declarations import EXAMPLES, NAMES, compiled


def exchanges(one: Compiled) -> dict[str, str]:
    assert all(exchange.durable and not exchange.auto_delete for exchange in one.topology.exchanges)
    return {exchange.name: exchange.type for exchange in one.topology.exchanges}


def queues(one: Compiled) -> dict[str, dict[str, Any]]:
    assert all(queue.durable and not queue.auto_delete for queue in one.topology.queues)
    return {queue.name: queue.arguments.thaw() for queue in one.topology.queues}


def bindings(one: Compiled) -> set[tuple[str, str, str]]:
    assert all(binding.destination_type == "queue" and not binding.arguments for binding in one.topology.bindings)
    return {(binding.source, binding.routing_key, binding.destination) for binding in one.topology.bindings}


DOMAINS = ("user", "auth", "alarm", "document", "workflow", "notification", "audit")
TIERS = {"30s": 30_000, "5m": 300_000, "30m": 1_800_000}


def test_freeflow_has_its_three_exchanges() -> None:
    assert exchanges(compiled("freeflow")) == {
        "freeflow.events": "topic",
        "freeflow.events.retry": "direct",
        "freeflow.events.dlx": "fanout",
    }


def test_freeflow_has_21_retry_queues_7_domain_queues_and_one_dlq() -> None:
    found = queues(compiled("freeflow"))
    expected: dict[str, Any] = {"freeflow.events.dlq": {}}
    for domain in DOMAINS:
        expected[f"freeflow.{domain}"] = {"x-dead-letter-exchange": "freeflow.events.dlx"}
        for tier, ttl_ms in TIERS.items():
            expected[f"freeflow.{domain}.retry.{tier}"] = {
                "x-message-ttl": ttl_ms,
                "x-dead-letter-exchange": "freeflow.events",
                "x-dead-letter-routing-key": f"{domain}.retry",
            }
    assert sum(".retry." in name for name in found) == 21
    assert found == expected


def test_freeflow_binds_tiers_by_domain_and_delay_and_domains_by_wildcard() -> None:
    expected = {("freeflow.events.dlx", "", "freeflow.events.dlq")}
    for domain in DOMAINS:
        expected.add(("freeflow.events", f"{domain}.*", f"freeflow.{domain}"))
        for tier in TIERS:
            expected.add(("freeflow.events.retry", f"{domain}.{tier}", f"freeflow.{domain}.retry.{tier}"))
    found = bindings(compiled("freeflow"))
    assert found == expected
    # "The retry queues are not bound to the main exchange."
    assert not [one for one in found if one[0] == "freeflow.events" and ".retry." in one[2]]


def test_event_bus_names_everything_by_the_service_prefix() -> None:
    assert exchanges(compiled("event-bus")) == {
        "wms.main-exchange": "fanout",
        "wms.retry-exchange.wms-cincout": "direct",
        "xyz.main-exchange": "fanout",
        "xyz.retry-exchange.xyz-service": "direct",
        "default.main-exchange": "fanout",
        "default.retry-exchange.noprefix": "direct",
    }


def test_event_bus_queues_have_the_documented_arguments() -> None:
    assert queues(compiled("event-bus")) == {
        "wms.queue.wms-cincout": {
            "x-dead-letter-exchange": "wms.retry-exchange.wms-cincout",
            "x-dead-letter-routing-key": "retry",
        },
        "wms.retry-queue.wms-cincout": {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "wms.queue.wms-cincout",
            "x-message-ttl": 5000,
        },
        "wms.dlq.wms-cincout": {},
        "xyz.queue.xyz-service": {
            "x-dead-letter-exchange": "xyz.retry-exchange.xyz-service",
            "x-dead-letter-routing-key": "retry",
        },
        "xyz.retry-queue.xyz-service": {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "xyz.queue.xyz-service",
            "x-message-ttl": 5000,
        },
        "xyz.dlq.xyz-service": {},
        "default.queue.noprefix": {
            "x-dead-letter-exchange": "default.retry-exchange.noprefix",
            "x-dead-letter-routing-key": "retry",
        },
        "default.retry-queue.noprefix": {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "default.queue.noprefix",
            "x-message-ttl": 5000,
        },
        "default.dlq.noprefix": {},
    }


def test_event_bus_queues_are_classic() -> None:
    assert {queue.type for queue in compiled("event-bus").topology.queues} == {"classic"}


def test_event_bus_binds_services_to_the_fanout_and_retries_by_the_key_retry() -> None:
    assert bindings(compiled("event-bus")) == {
        ("wms.main-exchange", "", "wms.queue.wms-cincout"),
        ("wms.retry-exchange.wms-cincout", "retry", "wms.retry-queue.wms-cincout"),
        ("xyz.main-exchange", "", "xyz.queue.xyz-service"),
        ("xyz.retry-exchange.xyz-service", "retry", "xyz.retry-queue.xyz-service"),
        ("default.main-exchange", "", "default.queue.noprefix"),
        ("default.retry-exchange.noprefix", "retry", "default.retry-queue.noprefix"),
    }


FILE_PIPELINE = {
    "q.upload.commands": ("domain.commands", ("commands.upload.#", "commands.file.reprocess.*")),
    "q.validator": ("domain.events", ("files.uploaded.*",)),
    "q.thumbnail": ("domain.events", ("files.validated.*",)),
    "q.extractor": ("domain.events", ("files.validated.*",)),
    "q.projection": ("domain.events", ("#",)),
    "q.notification": ("domain.events", ("processing.#", "files.rejected.*")),
    "q.audit": ("domain.events", ("#",)),
}


def test_file_pipeline_has_a_retry_and_a_dlq_exchange_for_each_of_its_seven_queues() -> None:
    expected = {"domain.events": "topic", "domain.commands": "topic"}
    for queue in FILE_PIPELINE:
        expected |= {f"retry.{queue}": "direct", f"dlq.{queue}": "direct"}
    assert exchanges(compiled("file-pipeline")) == expected


def test_file_pipeline_queues_have_the_documented_arguments() -> None:
    expected: dict[str, Any] = {}
    for queue in FILE_PIPELINE:
        expected |= {
            queue: {"x-dead-letter-exchange": f"retry.{queue}", "x-dead-letter-routing-key": "retry"},
            f"{queue}.retry": {
                "x-message-ttl": 15000,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": queue,
            },
            f"{queue}.dlq": {},
        }
    assert queues(compiled("file-pipeline")) == expected


def test_file_pipeline_has_the_documented_bindings() -> None:
    expected = set()
    for queue, (exchange, keys) in FILE_PIPELINE.items():
        expected |= {(exchange, key, queue) for key in keys}
        expected |= {(f"retry.{queue}", "retry", f"{queue}.retry"), (f"dlq.{queue}", "parking", f"{queue}.dlq")}
    assert bindings(compiled("file-pipeline")) == expected


def test_ratatoskr_has_its_queues_all_quorum_with_their_arguments() -> None:
    found = compiled("ratatoskr")
    documented: dict[str, dict[str, Any]] = {
        "my-service.events": {
            "x-queue-type": "quorum",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "my-service.events.retry",
        },
        "my-service.events.retry": {
            "x-queue-type": "quorum",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "my-service.events",
            "x-message-ttl": 30000,
        },
        "my-service.events.dlq": {"x-queue-type": "quorum"},
    }
    # What the document does not speak of and its promise of at-least-once needs.
    loop: dict[str, Any] = {
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-delivery-limit": 1_000_000,
    }
    added: dict[str, dict[str, Any]] = {
        "my-service.events": loop,
        "my-service.events.retry": loop,
        "my-service.events.dlq": {"x-delivery-limit": 1_000_000},
    }
    assert queues(found) == {name: documented[name] | added[name] for name in documented}
    assert exchanges(found) == {"ratatoskr.events": "topic", "my-service.events.dlq": "fanout"}
    assert bindings(found) == {
        ("ratatoskr.events", "my-service.#", "my-service.events"),
        ("my-service.events.dlq", "", "my-service.events.dlq"),
    }


def test_bookly_has_a_topic_dlx_and_a_dlq_for_each_queue() -> None:
    found = compiled("bookly")
    assert exchanges(found) == {"bookly.events": "topic", "bookly.events.dlx": "topic"}
    assert queues(found) == {
        "availability": {
            "x-dead-letter-exchange": "bookly.events.dlx",
            "x-dead-letter-routing-key": "availability.dlq",
        },
        "availability.dlq": {},
        "reports": {"x-dead-letter-exchange": "bookly.events.dlx", "x-dead-letter-routing-key": "reports.dlq"},
        "reports.dlq": {},
    }
    assert bindings(found) == {
        ("bookly.events", "availability.#", "availability"),
        ("bookly.events", "reservation.#", "reports"),
        ("bookly.events.dlx", "availability.dlq", "availability.dlq"),
        ("bookly.events.dlx", "reports.dlq", "reports.dlq"),
    }


def test_ladder_waits_in_one_quorum_queue_per_delay_and_parks_for_good() -> None:
    found = compiled("ladder")
    safe = {"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders", "x-delivery-limit": 1_000_000}
    assert queues(found) == {
        "orders": safe
        | {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.parked", "x-delivery-limit": 20},
        "orders.wait.30s": safe | back | {"x-message-ttl": 30_000},
        "orders.wait.5m": safe | back | {"x-message-ttl": 300_000},
        "orders.wait.30m": safe | back | {"x-message-ttl": 1_800_000},
        "orders.parked": {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000},
    }
    assert exchanges(found) == {"domain.events": "topic"}
    assert bindings(found) == {("domain.events", "orders.#", "orders")}


def test_native_delays_in_the_queue_itself_and_parks_at_the_limit() -> None:
    found = compiled("native")
    assert queues(found) == {
        "orders": {
            "x-queue-type": "quorum",
            "x-delayed-retry-type": "failed",
            "x-delayed-retry-min": 30_000,
            "x-delayed-retry-max": 300_000,
            "x-delivery-limit": 4,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "orders.parked",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        },
        "orders.parked": {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000},
    }
    assert exchanges(found) == {"domain.events": "topic"}
    assert bindings(found) == {("domain.events", "orders.#", "orders")}


RUNS = {
    "freeflow": 4,
    "event-bus": 11,
    "file-pipeline": 3,
    "ratatoskr": 4,
    "bookly": 4,
    "ladder": 4,
    "native": 4,
}


@pytest.mark.parametrize("name", NAMES)
def test_every_queue_of_an_example_runs_as_often_as_its_document_says(name: str) -> None:
    assert {one.attempts for one in compiled(name).retry_routes} == {RUNS[name]}


@pytest.mark.parametrize("name", NAMES)
def test_the_retry_routes_of_an_example_exist_in_its_topology(name: str) -> None:
    """A wait or parking publish to `exchange` with `routing_key` ends in exactly the queue it names."""
    found = compiled(name)
    bound = bindings(found)
    queues_by_name: dict[str, Queue] = {queue.name: queue for queue in found.topology.queues}
    for one in found.retry_routes:
        assert one.queue in queues_by_name
        targets = [(wait.exchange, wait.routing_key, wait.queue) for wait in one.waits]
        for exchange, key, queue in [*targets, (one.parking.exchange, one.parking.routing_key, one.parking.queue)]:
            if exchange == "":
                assert key == queue
            else:
                assert {bound_key for source, bound_key, to in bound if (source, to) == (exchange, queue)} == {
                    key or ""
                }
        for wait in one.waits:
            assert queues_by_name[wait.queue].message_ttl_ms == wait.delay_ms


@pytest.mark.parametrize("name", ["freeflow", "event-bus", "file-pipeline", "ratatoskr", "bookly"])
def test_a_document_takes_at_most_40_lines(name: str) -> None:
    assert len((EXAMPLES / name / "redrive.yaml").read_text().splitlines()) <= 40


def test_file_pipeline_is_the_documents_own_system() -> None:
    """The definitions file of the system that the document describes, where it lies beside the project."""
    folder = EXAMPLES.parents[1] / "shared" / "definitions"
    files = list(folder.glob("AlexandreNoguez--*.json"))
    if not files:
        pytest.skip("the system's own definitions file is not beside this clone")
    theirs = read_definitions(files[0].read_text())
    ours = compiled("file-pipeline").topology
    assert set(ours.exchanges) == set(theirs.exchanges)
    assert set(ours.queues) == set(theirs.queues)
    assert set(ours.bindings) == set(theirs.bindings)
