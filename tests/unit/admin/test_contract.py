"""The API keeps to its own OpenAPI document, whatever it is asked: schemathesis thinks of the questions.

Valid questions name what is there, as often as not, so that they get past the first 404; and each operation must have
answered some of them with success. The broker is nowhere.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from redrive.admin import Services
from redrive.records import Role, Status
from redrive.stores import Store
from tests.examples import IS_MATRIX
from tests.unit.admin.conftest import BASE_URL, Clock, PutLetter, Run, make_token, without_patience
from tests.unit.admin.seeding import STATUSES, Seeded, ask, operate, seed

CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
WITHOUT_BROKER = {
    "GET /readyz",
    "GET /admin/dlq/queues/{queue}/messages",
    "POST /admin/dlq/queues/{queue}/re-drive",
}
"""May answer 503 here, and nothing else may."""
NO_SUCCESS = {"GET /readyz"}
"""Has no success without a broker."""
_NEEDED = {
    "POST /api/v1/messages/{message_id}/settle": Status.IN_DOUBT,
    "POST /dlq/{dlq_id}/retry": Status.FAILED,
}
_BY_IDS = {
    "POST /api/v1/redrives",
    "POST /api/v1/messages/resolve",
    "POST /api/v1/messages/reopen",
    "POST /api/v1/messages/delete",
}
_TARGETS = {
    "message_id": "letters",
    "dlq_id": "letters",
    "group_id": "groups",
    "redrive_id": "operations",
    "token_id": "tokens",
    "redaction_id": "redactions",
}


@pytest.fixture
def services(services: Services, run: Run) -> Iterator[Services]:
    """As the room's, but nobody waits for the broker."""
    yield from without_patience(services, run)


@dataclass(slots=True)
class Examiner:
    """Asks what schemathesis thinks of, and compares the answers with the document."""

    app: FastAPI
    services: Services
    run: Run
    put_letter: PutLetter
    token: str
    seeded: Seeded
    answered: Counter[tuple[str, int]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    _is_changed: bool = False

    def examine(self, operation: Any, mode: GenerationMode, count: int, *, is_random: bool) -> None:
        """One operation, with so many questions that are valid, or that are not."""

        @settings(
            max_examples=count,
            deadline=None,
            database=None,
            derandomize=not is_random,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if is_random else [])],
        )
        @given(case=operation.as_strategy(generation_mode=mode), seed=st.integers(0, 2**32))
        def check(case: Case[Any], seed: int) -> None:
            if mode is GenerationMode.POSITIVE:
                self._aim(case, Random(seed))
            answer = self.run(self._ask(case))
            self.answered[operation.label, answer.status_code] += 1
            self._judge(operation.label, case, answer)

        try:
            check()
        except Unsatisfiable:
            pass  # an operation that takes nothing can't be asked wrongly
        except (AssertionError, BaseExceptionGroup) as error:
            self.failures.append(f"{operation.label} ({mode.value}): {error}")

    def _aim(self, case: Case[Any], random: Random) -> None:
        """Names what is there in two of three questions."""
        if not random.randrange(3):
            return
        label = case.operation.label
        for name in case.path_parameters:
            if label in _NEEDED:
                case.path_parameters[name] = self.seeded.letters[STATUSES.index(_NEEDED[label])]
            elif name in _TARGETS:
                case.path_parameters[name] = random.choice(getattr(self.seeded, _TARGETS[name]))
            elif name == "scope":
                case.path_parameters[name] = random.choice(["queue:orders", "*", "group:timeouts"])
            elif name == "queue":
                case.path_parameters[name] = "orders.parked"
        if any(one["name"] == "If-Match" for one in case.operation.definition.raw.get("parameters", ())):
            case.headers["If-Match"] = random.choice(['"1"', "*"])
        if label.startswith("PATCH") and isinstance(case.body, dict):
            # Few properties of a message are what a schema can say.
            case.body.pop("properties", None)
            case.body["set_headers"] = {"x-tenant": random.choice(["acme", 1, None])}
        for name, known in (("q", "queue:orders"), ("cursor", None)):
            if name in case.query:
                if known is None:
                    del case.query[name]
                else:
                    case.query[name] = known
        if label in _BY_IDS and isinstance(case.body, dict):
            for name in ("q", "group", "queue", "target"):
                case.body.pop(name, None)
            case.body["ids"] = random.sample(self.seeded.letters[:2], 1)

    async def _ask(self, case: Case[Any]) -> httpx.Response:
        if self._is_changed:
            await self._refill()
        self._is_changed = case.method != "GET"
        prepared = requests.Request(**case.as_transport_kwargs(base_url=BASE_URL)).prepare()
        headers = [(_bytes(name), _bytes(value)) for name, value in prepared.headers.items()]
        headers = [pair for pair in headers if pair[0].lower() != b"authorization"]
        headers.append((b"authorization", f"Bearer {self.token}".encode()))
        body = prepared.body or b""
        assert isinstance(body, str | bytes)
        target = str(prepared.url).removeprefix(BASE_URL) or "/"
        return await ask(
            self.app,
            str(prepared.method),
            target,
            headers=headers,
            body=body.encode() if isinstance(body, str) else body,
        )

    async def _refill(self) -> None:
        """What was deleted or has ended comes anew: the next question shall meet it too."""
        store = self.services.store
        for place, id in enumerate(self.seeded.letters):
            found = await store.letters.get(id)
            if found is None or found.status is not STATUSES[place]:
                self.seeded.letters[place] = (await self.put_letter(status=STATUSES[place])).id
        for place, id in enumerate(self.seeded.operations):
            operation = await store.operations.get(id)
            if operation is None or operation.ended_at_ms is not None:
                letter = await self.put_letter()
                self.seeded.operations[place] = (await operate(self.services, (letter.id,))).id

    def _judge(self, label: str, case: Case[Any], answer: httpx.Response) -> None:
        if answer.status_code == 503 and label in WITHOUT_BROKER:
            assert "retry-after" in answer.headers
            case.validate_response(answer, checks=CHECKS[:-1])
            return
        # In a URL a list, an object or nothing is a text like others: what was meant as invalid may have become valid.
        # And any text is a list of one, where a list of texts is taken.
        parameters = case.operation.definition.raw.get("parameters", ())
        lists = {one["name"] for one in parameters if "array" in str(one.get("schema", {}).get("anyOf", ""))}
        is_lost = any(
            value is None or isinstance(value, list | dict) or name in lists for name, value in case.query.items()
        )
        # Too large is a refusal like others, though the check does not know it.
        is_refused = answer.status_code == 413
        checks = CHECKS[:-1] if is_lost or is_refused else CHECKS
        case.validate_response(answer, checks=[not_a_server_error, *checks])


@pytest.fixture
def examiner(app: FastAPI, services: Services, store: Store, clock: Clock, put_letter: PutLetter, run: Run) -> Examiner:
    """An admin, on a store with one of everything."""
    token = run(make_token(store, "examiner", Role.ADMIN, now_ms=clock()))
    seeded = run(seed(services, put_letter))
    return Examiner(app=app, services=services, run=run, put_letter=put_letter, token=token, seeded=seeded)


def examine_everything(examiner: Examiner, *, valid: int, invalid: int, is_random: bool) -> None:
    schema = schemathesis.openapi.from_dict(examiner.app.openapi())
    # Who comes without a token is another table's matter.
    schema.config.generation.with_security_parameters = False
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        examiner.examine(operation, GenerationMode.POSITIVE, valid, is_random=is_random)
        examiner.examine(operation, GenerationMode.NEGATIVE, invalid, is_random=is_random)
    assert not examiner.failures, "\n\n".join(examiner.failures)
    asked = {label for label, _ in examiner.answered}
    assert len(asked) == sum(len(one) for one in examiner.app.openapi()["paths"].values())
    succeeded = {label for label, status in examiner.answered if status < 400}
    assert asked - succeeded <= NO_SUCCESS


@pytest.mark.slow
def test_every_operation_answers_as_the_document_says(examiner: Examiner) -> None:
    examine_everything(examiner, valid=4, invalid=1, is_random=False)


@pytest.mark.slow
def test_every_operation_answers_as_the_document_says_to_many_questions(examiner: Examiner) -> None:
    examine_everything(examiner, valid=40, invalid=25, is_random=IS_MATRIX)


@pytest.mark.slow
def test_a_break_of_the_contract_would_be_seen(examiner: Examiner) -> None:
    document = examiner.app.openapi()
    document["components"]["schemas"]["Statistics"]["properties"]["total"] = {"type": "string"}
    operation = schemathesis.openapi.from_dict(document)["/api/v1/stats"]["GET"]
    examiner.examine(operation, GenerationMode.POSITIVE, 3, is_random=False)
    (failure,) = examiner.failures
    assert "total" in failure


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin-1", "replace")
