"""Putting dead letters into the full-text index and taking them out. What a word is, `words` says.

SQLite's index has no content of its own, which would be searched no faster and written twice; it can forget only words
it is told again, so they are kept beside it.
"""

from collections.abc import Sequence

from redrive.records import is_cut
from redrive.stores.database import WriteTransaction
from redrive.stores.words import as_tsvector, pack_words, searchable, unpack_words

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
    told = [(seq, text, is_whole and not is_cut(text)) for seq, text, is_whole in texts]
    if tx.dialect.kind == "postgresql":
        vectors = [as_tsvector(text, is_whole=is_whole) for _, text, is_whole in told]
        await tx.run(_INDEX_POSTGRESQL, [seq for seq, _, _ in told], vectors)
        return
    words = [(seq, searchable(text, is_whole=is_whole)) for seq, text, is_whole in told]
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
