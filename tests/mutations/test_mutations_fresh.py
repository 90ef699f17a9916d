"""Every seeded bug still fits the source it is for: a stale one proves nothing."""

import ast
from pathlib import Path

import pytest

from tests.mutations import copy_guard
from tests.mutations.bugs import MUTATIONS
from tests.mutations.mutation import ROOT, Mutation, Stale


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_seeded_bug_fits_the_source_and_changes_it(mutation: Mutation) -> None:
    source = (ROOT / mutation.path).read_text(encoding="utf-8")
    assert ast.dump(ast.parse(mutation.mutated(source))) != ast.dump(ast.parse(source))


def test_seeded_bugs_have_names_of_their_own_and_come_from_every_area() -> None:
    names = [mutation.name for mutation in MUTATIONS]
    assert len(set(names)) == len(names) >= 15
    areas = {"Exchanges", "Queues", "Deaths", "Time", "Limits", "Outcomes", "Versions", "Restart"}
    assert {mutation.area for mutation in MUTATIONS} == areas


def test_a_bug_whose_text_is_gone_or_ambiguous_is_stale() -> None:
    mutation = Mutation(name="n", area="Queues", file="f.py", old="a = 1", new="a = 2", sees="nothing")
    assert mutation.mutated("a = 1\n") == "a = 2\n"
    for source, count in (("b = 1\n", 0), ("a = 1\na = 1\n", 2)):
        with pytest.raises(Stale) as stale:
            mutation.mutated(source)
        assert stale.value.count == count


def test_tests_that_would_import_the_original_are_not_run(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(copy_guard.COPY, str(ROOT))
    copy_guard.pytest_sessionstart(request.session)
    monkeypatch.setenv(copy_guard.COPY, str(tmp_path))
    with pytest.raises(pytest.UsageError, match="which is not in the copy"):
        copy_guard.pytest_sessionstart(request.session)
