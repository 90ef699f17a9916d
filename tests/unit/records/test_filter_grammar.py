"""A filter's text means what the reference says, is refused with its place, and comes back from its own writing."""

import pickle
from datetime import UTC, datetime
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.records import (
    BodyTerm,
    ErrorTerm,
    Filter,
    FlagTerm,
    HeaderTerm,
    InvalidFilter,
    NameTerm,
    NumberTerm,
    Status,
    Term,
    TimeTerm,
    WordsTerm,
    format_filter,
    parse_filter,
    words_of,
)
from redrive.records.filters import terms as vocabulary

NOW_MS = 1_793_534_400_000  # 2026-11-01T12:00:00Z
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
TODAY_MS = NOW_MS - 12 * HOUR_MS


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def only(text: str) -> Term:
    (term,) = parse_filter(text, now_ms=NOW_MS).terms
    return term


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("queue:orders", NameTerm(field="queue", values=("orders",))),
        ("queue:orders,sales.*", NameTerm(field="queue", values=("orders", "sales.*"))),
        ('queue:"a b","c,d",e', NameTerm(field="queue", values=("a b", "c,d", "e"))),
        (r'queue:"a \"b\" \\ c"', NameTerm(field="queue", values=('a "b" \\ c',))),
        ('exchange:""', NameTerm(field="exchange", values=("",))),
        ("key:order.*", NameTerm(field="topic", values=("order.*",))),
        ("routing_key:a", NameTerm(field="topic", values=("a",))),
        ("eventType:a", NameTerm(field="type", values=("a",))),
        ("MESSAGE-ID:a:b", NameTerm(field="message_id", values=("a:b",))),
        ("status:Pending,IN-DOUBT", NameTerm(field="status", values=("pending", "in_doubt"))),
        ("-status:failed", NameTerm(field="status", values=("failed",), negated=True)),
        ("not:status:failed", NameTerm(field="status", values=("failed",), negated=True)),
        ("error:Timeout", ErrorTerm(text="Timeout")),
        ('error:"took, too long"', ErrorTerm(text="took, too long")),
        ("is:poison", FlagTerm(flag="poison")),
        ("-is:COPY", FlagTerm(flag="copy", negated=True)),
        ("attempts:3", NumberTerm(field="attempts", low=3, high=3)),
        ("redrives:>3", NumberTerm(field="redrives", low=4, high=None)),
        ("returns:>=3", NumberTerm(field="returns", low=3, high=None)),
        ("attempts:<3", NumberTerm(field="attempts", low=None, high=2)),
        ("statusCode:500..599", NumberTerm(field="status_code", low=500, high=599)),
        ("attempts:..5", NumberTerm(field="attempts", low=None, high=5)),
        ("size:>64kB", NumberTerm(field="size", low=64_001, high=None)),
        ("size:<=1.5MiB", NumberTerm(field="size", low=None, high=1_572_864)),
        ("size:1.0", NumberTerm(field="size", low=1, high=1)),
        ("size:1k..2M", NumberTerm(field="size", low=1_000, high=2_000_000)),
        ("body.customer.id:42", BodyTerm(path=("customer", "id"), value="42")),
        ("body.items.*.sku:A*", BodyTerm(path=("items", "*", "sku"), value="A*")),
        ('body."strange key".x:"a b"', BodyTerm(path=("strange key", "x"), value="a b")),
        ("header.x-tenant:acme", HeaderTerm(name="x-tenant", value="acme")),
        ("header.NServiceBus.FailedQ:orders", HeaderTerm(name="NServiceBus.FailedQ", value="orders")),
        ('-header."x-strange name":v', HeaderTerm(name="x-strange name", value="v", negated=True)),
        ("Timeout", WordsTerm(words=("timeout",))),
        ("time*", WordsTerm(words=("time",), is_prefix=True)),
        ('"payment took"', WordsTerm(words=("payment", "took"), is_phrase=True)),
        ('"payment to"*', WordsTerm(words=("payment", "to"), is_phrase=True, is_prefix=True)),
        ("order-17", WordsTerm(words=("order", "17"), is_phrase=True)),
        ("-order", WordsTerm(words=("order",), negated=True)),
        ("12:30", WordsTerm(words=("12", "30"), is_phrase=True)),
        ('words:"b a"', WordsTerm(words=("b", "a"))),
    ],
)
def test_a_term_means_what_the_reference_says(text: str, term: Term) -> None:
    assert only(text) == term


@pytest.mark.parametrize(
    ("written", "from_ms", "until_ms"),
    [
        (">2h", None, NOW_MS - 2 * HOUR_MS),
        ("<15m", NOW_MS - HOUR_MS // 4, None),
        ("2h..1h", NOW_MS - 2 * HOUR_MS, NOW_MS - HOUR_MS),
        ("today", TODAY_MS, TODAY_MS + DAY_MS),
        ("yesterday", TODAY_MS - DAY_MS, TODAY_MS),
        ("2026-10-01", ms("2026-10-01"), ms("2026-10-02")),
        (">2026-10-01", ms("2026-10-02"), None),
        (">=2026-10-01", ms("2026-10-01"), None),
        ("<2026-10-01", None, ms("2026-10-01")),
        ("<=2026-10-01", None, ms("2026-10-02")),
        (">2026-10-01T12:00Z", ms("2026-10-01T12:00:00"), None),
        (">2026-10-01T12:00:00.5+02:00", ms("2026-10-01T10:00:00") + 500, None),
        ("2026-10-01T12:00", ms("2026-10-01T12:00:00"), ms("2026-10-01T12:01:00")),
        ("2026-10-01..2026-10-03", ms("2026-10-01"), ms("2026-10-04")),
        ("2026-10-01..", ms("2026-10-01"), None),
        ("..yesterday", None, TODAY_MS),
        ("@5..@9", 5, 9),
        ("..", None, None),
    ],
)
def test_moments_are_absolute_once_they_are_read(written: str, from_ms: int | None, until_ms: int | None) -> None:
    assert only(f"dead:{written}") == TimeTerm(field="dead", from_ms=from_ms, until_ms=until_ms)


def test_terms_are_parted_by_blanks_and_all_kept_in_order() -> None:
    parsed = parse_filter(
        "  queue:orders\terror:Timeout \n dead:>2h body.customer.id:42 status:pending ", now_ms=NOW_MS
    )
    assert [type(term) for term in parsed.terms] == [NameTerm, ErrorTerm, TimeTerm, BodyTerm, NameTerm]
    assert parse_filter("", now_ms=NOW_MS) == Filter()


@pytest.mark.parametrize(
    ("text", "code", "column", "said"),
    [
        ("x quue:orders", "unknown-field", 3, "did you mean `queue`?"),
        ("status:pendng", "invalid-value", 1, "did you mean `pending`?"),
        ("is:posion", "invalid-value", 1, "did you mean `poison`?"),
        ("http://x", "unknown-field", 1, 'put it in "quotes"'),
        ("dead:2h", "invalid-value", 1, "write >2h (older) or <2h (younger)"),
        ("dead:2026-02-30", "invalid-value", 1, "no day of the calendar"),
        ("dead:2026-11-03..2026-11-01", "invalid-value", 1, "ends before it begins"),
        ("attempts:many", "invalid-value", 1, "no whole number"),
        ("attempts:5..1", "invalid-value", 1, "ends before it begins"),
        ("attempts:1k", "invalid-value", 1, "no whole number"),
        ("size:1x", "invalid-value", 1, "write 64kB"),
        ("size:1.5", "invalid-value", 1, "write 1 or 2"),
        ("size:>=1.5B", "invalid-value", 1, "write 1 or 2"),
        ("size:1..1.3KiB", "invalid-value", 1, "write 1331 or 1332"),
        ("topic:" + ",".join(f"*{n}" for n in range(51)), "too-many-stars", 1, "write the names out"),
        ("topic:" + "*a" * 11, "too-many-stars", 1, "write the names out"),
        ("body." + "a." * 100 + "b:x", "invalid-value", 1, "shorten it"),
        ("size:>99999999999999999", "invalid-value", 1, "write 64kB"),
        ("dead:>999999999999d", "invalid-value", 1, "beyond all bounds"),
        ("queue:", "invalid-value", 1, "needs a value"),
        ("queue:a,,b", "invalid-value", 1, "missing"),
        ("queue.x:a", "unknown-field", 1, "has no parts"),
        ("body:x", "invalid-value", 1, "needs a path"),
        ("header.:x", "invalid-value", 1, "needs a name"),
        ("ok --no", "negated-twice", 4, "negated twice"),
        ("a -", "empty-term", 3, "nothing after it"),
        ("a ***", "no-words", 3, "no letters or digits"),
        ("a ti*me", "no-words", 3, "at the end of a word"),
        ('a "open', "open-quote", 3, "not closed"),
        ("a\0", "no-text", 2, "no text holds"),
        ("a " * 101, "too-long", 1, "at most 100 terms"),
        ("a" * 10_001, "too-long", 10_001, "at most 10,000 characters"),
    ],
)
def test_what_is_no_filter_is_refused_with_its_place_and_the_way_out(
    text: str, code: str, column: int, said: str
) -> None:
    with pytest.raises(InvalidFilter) as caught:
        parse_filter(text, now_ms=NOW_MS)
    assert caught.value.problems[0].code == code
    assert caught.value.problems[0].start + 1 == column
    assert said in str(caught.value)


def test_everything_that_is_wrong_is_said_at_once_and_pointed_at() -> None:
    with pytest.raises(InvalidFilter) as caught:
        parse_filter("fine quue:x status:nope", now_ms=NOW_MS)
    error = pickle.loads(pickle.dumps(caught.value))
    assert [problem.code for problem in error.problems] == ["unknown-field", "invalid-value"]
    assert error.pointer == "fine quue:x status:nope\n     ^^^^^^"
    assert len(error.findings) == 2


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
tricky = texts | st.text('a"\\ ,.:*-@<>=', max_size=8)
word_lists = texts.map(words_of).filter(lambda found: len(found) > 0)
numbers = st.integers(-1000, 2**53 - 2)
moments = st.integers(-(2**53) + 1, 2**53 - 1)
negated = st.booleans()


def pairs(inner: st.SearchStrategy[int], *, strictly: bool) -> st.SearchStrategy[tuple[int | None, int | None]]:
    def in_order(ends: tuple[int | None, int | None]) -> bool:
        low, high = ends
        return low is None or high is None or low < high or (low == high and not strictly)

    return st.tuples(st.none() | inner, st.none() | inner).filter(in_order)


fields = get_args(vocabulary.NameField)
terms: st.SearchStrategy[Term] = st.one_of(
    st.builds(
        NameTerm,
        field=st.sampled_from([field for field in fields if field != "status"]),
        values=st.lists(tricky, min_size=1, max_size=3).map(tuple),
        negated=negated,
    ),
    st.builds(
        NameTerm,
        field=st.just("status"),
        values=st.lists(st.sampled_from([status.value for status in Status]), min_size=1, max_size=3).map(tuple),
        negated=negated,
    ),
    st.tuples(st.sampled_from(get_args(vocabulary.MomentField)), pairs(moments, strictly=True), negated).map(
        lambda drawn: TimeTerm(field=drawn[0], from_ms=drawn[1][0], until_ms=drawn[1][1], negated=drawn[2])
    ),
    st.tuples(st.sampled_from(get_args(vocabulary.NumberField)), pairs(numbers, strictly=False), negated).map(
        lambda drawn: NumberTerm(field=drawn[0], low=drawn[1][0], high=drawn[1][1], negated=drawn[2])
    ),
    st.builds(FlagTerm, flag=st.sampled_from(get_args(vocabulary.Flag)), negated=negated),
    st.builds(ErrorTerm, text=tricky.filter(bool), negated=negated),
    st.builds(
        BodyTerm, path=st.lists(tricky.filter(bool), min_size=1, max_size=3).map(tuple), value=tricky, negated=negated
    ),
    st.builds(HeaderTerm, name=tricky.filter(bool), value=tricky, negated=negated),
    st.builds(WordsTerm, words=word_lists, is_phrase=st.booleans(), is_prefix=st.booleans(), negated=negated),
)


@given(st.lists(terms, max_size=5).map(tuple).map(Filter))
def test_a_filter_written_is_read_back_as_the_same(filter: Filter) -> None:
    assert parse_filter(format_filter(filter), now_ms=0) == filter


FRAGMENTS = [
    *(
        "queue:",
        "status:",
        "dead:",
        "size:",
        "is:",
        "body.",
        "header.",
        "error:",
        "words:",
        "not:",
        "-",
        '"',
        "\\",
        ",",
    ),
    *(
        "*",
        "..",
        ">",
        "<=",
        "2h",
        "2026-11-01",
        "T12:00",
        "Z",
        "@",
        "pending",
        "poison",
        " ",
        "a",
        "7",
        "kB",
        ":",
        "é",
        "٣",
    ),
]


@given(st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=12).map("".join), moments)
def test_any_text_is_a_filter_or_refused_and_a_filter_survives_its_writing(text: str, now_ms: int) -> None:
    try:
        parsed = parse_filter(text, now_ms=now_ms)
    except InvalidFilter as refused:
        assert refused.problems
        assert all(0 <= problem.start <= problem.end <= len(text) for problem in refused.problems)
        assert refused.pointer
    else:
        assert parse_filter(format_filter(parsed), now_ms=0) == parsed


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("body.customer", "body.customer:*"),
        ("-body.customer.id", "body.customer.id:*"),
        ("Header.x-tenant", "Header.x-tenant:*"),
        ('body."strange key"', 'body."strange key":*'),
        ("body.customer=42", "body.customer:42"),
        ("attempts>3", "attempts:>3"),
        ("queue=orders", "queue:orders"),
        ("routing_key=a", "routing_key:a"),
    ],
)
def test_a_field_without_a_colon_is_not_taken_for_words(text: str, meant: str) -> None:
    with pytest.raises(InvalidFilter) as refused:
        parse_filter(text, now_ms=NOW_MS)
    (finding,) = refused.value.findings
    assert finding.code == "no-colon"
    assert f"did you mean `{meant}`?" in finding.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"body.customer"', ("body", "customer")),
        ('"attempts>3"', ("attempts", "3")),
        ("error", ("error",)),
        ("body", ("body",)),
        ("body.", ("body",)),
        ("shop.example", ("shop", "example")),
        ("error.log", ("error", "log")),
        ("a=b", ("a", "b")),
    ],
)
def test_words_stay_words(text: str, words: tuple[str, ...]) -> None:
    term = only(text)
    assert isinstance(term, WordsTerm)
    assert term.words == words


@pytest.mark.parametrize("text", ["status:nope " * 60, "- " * 60, "status:nope " * 40 + "- " * 40])
def test_no_more_is_told_than_a_person_reads_and_the_first_of_it(text: str) -> None:
    with pytest.raises(InvalidFilter) as refused:
        parse_filter(text, now_ms=NOW_MS)
    places = [problem.start for problem in refused.value.problems]
    assert len(places) == 50
    assert places == [place for place in range(len(text)) if place == 0 or text[place - 1] == " "][:50]
