"""Full-text search in each database: how words are written, and putting dead letters into the index and out of it.

What a word is, `records.search_words` says. SQLite and PostgreSQL would cut texts differently: PostgreSQL takes
`orders.created` for a host and `a/b` for a file, SQLite drops accents. Both keep words of letters and digits with
spaces between them, so they are given those. SQLite knows the letters of an old Unicode only: each newer one is written
as three characters that it knows.

SQLite's index keeps no content of its own: that would be searched no faster and written twice. It can forget only words
that it is given again, so they are kept in a table beside it.
"""

import unicodedata
import zlib
from collections.abc import Sequence
from itertools import chain

from redrive.records import GAP, POSITIONS_MAX, indexed_words, is_cut
from redrive.stores.database import WriteTransaction

CUT = f"{GAP}cut"
"""A word beside the others that says: not all of this letter is in the index."""

PACKED_FROM = 4_096
"""Characters. Packing a shorter text costs more time than the index itself and saves little."""

_PLACES = tuple(f":{place} " for place in range(1, 2_001))
_FASTEST = 1
_LAST_PLACE = POSITIONS_MAX + 2
# 16,384 ideographs that SQLite has always known: after a GAP, two of them stand for any character.
_IDEOGRAPHS, _BITS = 0x4E00, 14

_INDEX_POSTGRESQL = """
INSERT INTO letter_words (seq, words)
SELECT new.seq, new.words::tsvector FROM unnest($1::bigint[], $2::text[]) AS new (seq, words)
"""
_KEPT = "SELECT seq, words FROM search_texts WHERE seq = ANY($1::bigint[])"
_DROP_KEPT = "DELETE FROM search_texts WHERE seq = ANY($1::bigint[])"
_FORGET_SQLITE = "INSERT INTO letter_words (letter_words, rowid, words) VALUES ('delete', $1, $2)"
_FORGET_POSTGRESQL = "DELETE FROM letter_words WHERE seq = ANY($1::bigint[])"


async def index_words(tx: WriteTransaction, texts: Sequence[tuple[int, str, bool]]) -> None:
    """Makes dead letters (by number) findable by their texts, each with whether it is all there is of the letter. They
    must not be in the index already."""
    indexed = [(seq, text, is_whole and not is_cut(text)) for seq, text, is_whole in texts]
    if tx.dialect.kind == "postgresql":
        vectors = [as_tsvector(text, is_whole=is_whole) for _, text, is_whole in indexed]
        await tx.run(_INDEX_POSTGRESQL, [seq for seq, _, _ in indexed], vectors)
        return
    words = [(seq, searchable(text, is_whole=is_whole)) for seq, text, is_whole in indexed]
    await tx.insert("letter_words", ("rowid", "words"), words)
    await tx.insert("search_texts", ("seq", "words"), [(seq, pack_words(text)) for seq, text in words])


async def forget_words(tx: WriteTransaction, seqs: Sequence[int]) -> None:
    """Takes dead letters out of the index; those not in it are passed over."""
    if tx.dialect.kind == "postgresql":
        await tx.run(_FORGET_POSTGRESQL, list(seqs))
        return
    kept = await tx.rows(_KEPT, list(seqs))
    await tx.many(_FORGET_SQLITE, [(seq, unpack_words(words)) for seq, words in kept])
    await tx.run(_DROP_KEPT, list(seqs))


def searchable(text: str, *, is_whole: bool = True) -> str:
    """A text as it goes into SQLite's full-text index."""
    words = [known_to_sqlite(word) for word in indexed_words(text)]
    return " ".join(words if is_whole else [*words, CUT])


def pack_words(words: str) -> str | bytes:
    """A searchable text as SQLite keeps it beside the index, where what was given as text and what as bytes stay
    apart."""
    return words if len(words) < PACKED_FROM else zlib.compress(words.encode(), _FASTEST)


def unpack_words(kept: str | bytes) -> str:
    """The same again."""
    return kept if isinstance(kept, str) else zlib.decompress(kept).decode()


def known_to_sqlite(word: str) -> str:
    """A word in characters of which SQLite knows that they are letters or digits."""
    if word.isascii() or all(map(_is_known, word)):
        return word
    return "".join([each if _is_known(each) else _spelled(each) for each in word])


def as_tsvector(text: str, *, is_whole: bool = True) -> str:
    """The same, as PostgreSQL writes a tsvector: each word with its place. To cut the words once more, as `to_tsvector`
    does, would cost the server twice as much, and it has ideas of its own about `1e5` and the like."""
    words = indexed_words(text)
    mark = "" if is_whole else CUT
    if len(words) <= len(_PLACES) and GAP not in words:
        return "".join(chain.from_iterable(zip(words, _PLACES, strict=False))) + mark
    # The server adds up words that come twice; but so many it may not take.
    places: dict[str, list[str]] = {}
    for place, word in enumerate(words, 1):
        if word != GAP:
            of_word = places.setdefault(word, [])
            if place <= POSITIONS_MAX or not of_word or of_word[-1] != str(_LAST_PLACE):
                of_word.append(str(place if place <= POSITIONS_MAX else _LAST_PLACE))
    return " ".join([*(f"{word}:{','.join(of_word)}" for word, of_word in places.items()), mark]).rstrip()


def _is_known(character: str) -> bool:
    return unicodedata.ucd_3_2_0.category(character)[0] in "LN"


def _spelled(character: str) -> str:
    code = ord(character)
    return GAP + chr(_IDEOGRAPHS + (code >> _BITS)) + chr(_IDEOGRAPHS + (code & ((1 << _BITS) - 1)))
