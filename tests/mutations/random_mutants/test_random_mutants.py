"""The drawing of mutants: what is changed, and that a seed draws the same again."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.mutations.mutation import ROOT
from tests.mutations.random_mutants.judgements import Judgement, read_judgements
from tests.mutations.random_mutants.killers import Killer, read_killers, write_killers
from tests.mutations.random_mutants.line_coverage import LineCoverage
from tests.mutations.random_mutants.mutant_trial import ENDLESS, Verdict
from tests.mutations.random_mutants.operators import Mutant, mutants
from tests.mutations.random_mutants.report import share
from tests.mutations.random_mutants.sample import all_mutants, draw

SOURCE = '''\
"""Where a == b and 5."""

LIMIT: int = 5


def pick(letters, depth=3):
    """Not 7."""
    for letter in letters:
        if not letter.ready or letter.depth > depth:
            continue
        letter.take("größe", letter.name)
        return letter.of(messages=letter.a, consumers=letter.b)
    return None


QUERY = "SELECT id FROM letters WHERE a = 1 AND b <= 2"
'''


def changes() -> set[tuple[str, str, str]]:
    return {(each.operator, each.old.strip(), each.new.strip()) for each in mutants("src/redrive/x.py", SOURCE)}


def test_slips_are_made_where_something_runs_and_nowhere_else() -> None:
    assert changes() == {
        ("number", "5", "6"),
        ("number", "3", "4"),
        ("not", "not", ""),
        ("and/or", "or", "and"),
        ("comparison", ">", ">="),
        ("continue", "continue", "break"),
        ("call left out", 'letter.take("größe", letter.name)', "pass"),
        ("arguments swapped", '"größe", letter.name', 'letter.name, "größe"'),
        ("keywords swapped", "letter.a, consumers=letter.b", "letter.b, consumers=letter.a"),
        ("returns nothing", "return letter.of(messages=letter.a, consumers=letter.b)", "return None"),
        ("SQL", "AND", "OR"),
        ("SQL", "<=", "<"),
    }


def test_a_mutant_is_known_again_when_its_function_moves_in_the_file() -> None:
    moved = SOURCE.replace("LIMIT: int = 5\n", "LIMIT: int = 5\n\n# further down\n")
    before, after = (mutants("src/redrive/x.py", source) for source in (SOURCE, moved))
    assert [each.identity for each in before] == [each.identity for each in after]
    assert [each.start for each in before] != [each.start for each in after]


def test_every_mutant_of_the_source_is_python_with_another_meaning_and_has_a_name_of_its_own() -> None:
    identities: Counter[str] = Counter()
    for path in ("src/redrive/core/decision_table.py", "src/redrive/stores/leases.py", "src/redrive/wire/frames.py"):
        source = (ROOT / path).read_text(encoding="utf-8")
        meaning = ast.dump(ast.parse(source))
        for mutant in mutants(path, source):
            changed = ast.parse(mutant.mutated(source.encode()))
            assert ast.dump(changed) != meaning, mutant
            identities[mutant.identity] += 1
    assert identities
    assert set(identities.values()) == {1}


@pytest.mark.slow
def test_a_seed_draws_the_same_mutants_again_and_some_of_every_room() -> None:
    candidates = all_mutants(ROOT)
    first, second, other = (draw(list(candidates), ROOT, seed=seed, count=120) for seed in (1, 1, 2))
    assert first == second
    assert first != other
    assert len({each.identity for each in first}) == 120
    assert {each.room for each in first} == {each.room for each in candidates}


def test_what_runs_at_import_belongs_to_all_tests_of_its_file() -> None:
    found = {each.old: each for each in mutants("src/redrive/x.py", SOURCE)}
    coverage = LineCoverage(
        lines={"src/redrive/x.py": {3: [], 9: ["slow", "quick"], 11: ["other"]}},
        seconds={"slow": 2.0, "quick": 0.1, "other": 1.0},
    )
    assert coverage.tests_for(found["5"]) == ["quick", "other", "slow"]
    assert coverage.tests_for(found["not "]) == ["quick", "slow"]


def test_a_module_of_declarations_alone_belongs_to_the_tests_of_what_is_beside_it() -> None:
    (declared, *_) = mutants("src/redrive/room/limits.py", SOURCE)
    coverage = LineCoverage(
        lines={"src/redrive/room/x.py": {9: ["beside"]}, "src/redrive/elsewhere/x.py": {9: ["elsewhere"]}},
        seconds={"beside": 0.1, "elsewhere": 0.1},
    )
    assert coverage.tests_for(declared) == ["beside"]


def verdict(mutant: Mutant, killer: str | None) -> Verdict:
    return Verdict(mutant=mutant, killer=killer, tests=1, seconds=1.0, stage="quick")


def test_only_survivors_that_change_nothing_are_left_out_of_the_share() -> None:
    killed, equivalent, hole, unjudged = mutants("src/redrive/x.py", SOURCE)[:4]
    judgements = {
        equivalent.identity: Judgement(kind="equivalent", reason="nothing changes"),
        hole.identity: Judgement(kind="hole", reason="borne"),
    }
    verdicts = [verdict(killed, "test"), *(verdict(each, None) for each in (equivalent, hole, unjudged))]
    assert share(verdicts, judgements) == (1, 3)


def test_judgements_have_a_kind_and_a_reason(tmp_path: Path) -> None:
    assert all(each.reason for each in read_judgements().values())
    file = tmp_path / "judgements.toml"
    file.write_text('[abc]\nkind = "luck"\nreason = "x"\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"\[abc\] needs a kind"):
        read_judgements(file)


def test_who_noticed_a_mutant_is_known_the_next_time(tmp_path: Path) -> None:
    file = tmp_path / "killers.json"
    assert read_killers(file) == {}
    first, second, third = mutants("src/redrive/x.py", SOURCE)[:3]
    verdicts = [
        Verdict(mutant=first, killer="tests/unit/test_x.py::test_a", tests=3, seconds=1.0, stage="slow"),
        Verdict(mutant=second, killer=None, tests=3, seconds=1.0, stage="none"),
        Verdict(mutant=third, killer=ENDLESS, tests=3, seconds=1.0, stage="quick"),
    ]
    write_killers(verdicts, file)
    assert read_killers(file) == {first.identity: Killer(stage="slow", test="tests/unit/test_x.py::test_a")}
