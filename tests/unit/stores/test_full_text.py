"""Words are cut alike for both databases, and PostgreSQL takes them as we write them, however many there are."""

from hypothesis import given
from hypothesis import strategies as st

from redrive.records import WORD_LENGTH_MAX, Filter, WordsTerm, cut_words
from redrive.stores import Store
from redrive.stores.search.full_text import CUT, as_tsvector
from tests.unit.stores.arrivals import NOW_MS, collect, make_arrival
from tests.unit.stores.conftest import Run


def test_a_word_that_is_too_long_is_cut_and_the_others_are_not() -> None:
    longest = "a" * WORD_LENGTH_MAX
    assert cut_words(f"{longest} {longest}b c-D_e") == [longest, longest, "c", "d", "e"]


@given(st.text(alphabet=st.characters(max_codepoint=127), max_size=300))
def test_ascii_is_cut_as_any_other_text_is(text: str) -> None:
    assert [*cut_words(text), "e"] == cut_words(f"{text} é")


def test_every_word_has_its_places() -> None:
    assert as_tsvector("b a b") == "b:1 a:2 b:3 "
    many = as_tsvector("x " * 20_000 + "y x")
    assert many.split()[1:] == ["y:16383"]
    assert many.startswith("x:1,2,3,")
    assert many.count(",") == 254
    assert as_tsvector("b a", is_whole=False) == f"b:1 a:2 {CUT}"


def test_a_letter_with_any_number_of_words_is_found_by_them(store: Store, run: Run) -> None:
    texts = {
        "a few": "the gateway of zürich answered 1e5 times, 0x1f and 12ab: 'quoted' a\\b",
        "many": " ".join(f"w{number}" for number in range(30_000)),
        "many alike": "again " * 30_000 + "and the end",
        "none": "",
    }

    async def scenario() -> None:
        arrivals = [make_arrival(number, search_text=text) for number, text in enumerate(texts.values())]
        await collect(store, *arrivals)
        for text in texts.values():
            for word in {*cut_words(text)[:40], *cut_words(text)[-3:]}:
                found = await store.letters.count(Filter((WordsTerm(words=(word,)),)), now_ms=NOW_MS)
                assert found == sum(word in cut_words(other) for other in texts.values()), word
        phrase = WordsTerm(words=("answered", "1e5", "times"), is_phrase=True)
        assert await store.letters.count(Filter((phrase,)), now_ms=NOW_MS) == 1

    run(scenario())


def test_every_letter_of_unicode_makes_words_that_both_databases_keep(store: Store, run: Run) -> None:
    # A word of each block, among them letters that came after SQLite's Unicode.
    blocks = [range(start, start + 0x80) for start in range(0x80, 0x32000, 0x80)]
    texts = ["".join(chr(code) for code in block if chr(code).isalpha())[:20] for block in blocks]
    texts = [text for text in texts if text]
    cut = {text: cut_words(f"{text} end") for text in texts}

    async def scenario() -> None:
        arrivals = [make_arrival(number, search_text=f"{text} end") for number, text in enumerate(texts)]
        for start in range(0, len(arrivals), 200):
            await collect(store, *arrivals[start : start + 200])
        for text in texts[::7]:
            asked = WordsTerm(words=(text, "end"), is_phrase=True)
            expected = sum(cut[text] == cut[other] for other in texts)
            assert await store.letters.count(Filter((asked,)), now_ms=NOW_MS) >= max(expected, 1), text

    run(scenario())
