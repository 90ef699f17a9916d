"""Tables, sparklines and texts for people."""

import pytest

from redrive.cli.text_tables import (
    TableCell,
    TableColumn,
    counted,
    cut,
    duration_text,
    moment_text,
    printable,
    render_table,
    size_text,
    sparkline,
    text_width,
)

COLUMNS = (TableColumn(title="name", shrinks=True), TableColumn(title="count", is_number=True))


def test_columns_are_as_wide_as_their_widest_cell_and_numbers_stand_right() -> None:
    text = render_table(COLUMNS, [("orders", "7"), ("a", "1,200")], width=None, colour=False)
    assert text.splitlines() == ["NAME    COUNT", "orders      7", "a       1,200"]


def test_a_narrow_terminal_cuts_only_what_may_shrink() -> None:
    text = render_table(COLUMNS, [("a.very.long.queue.name", "123456")], width=18, colour=False)
    assert text.splitlines()[1] == "a.very.lo…  123456"
    narrower = render_table(COLUMNS, [("a.very.long.queue.name", "123456")], width=3, colour=False)
    assert narrower.splitlines()[1] == "a.ver…  123456"


def test_without_a_width_nothing_is_cut() -> None:
    name = "q" * 400
    assert name in render_table(COLUMNS, [(name, "1")], width=None, colour=False)


def test_colour_changes_no_width() -> None:
    rows = [(TableCell("failed", "red"), "1")]
    coloured = render_table(COLUMNS, rows, width=None, colour=True)
    assert "\x1b[31mfailed\x1b[0m" in coloured
    assert coloured.replace("\x1b[31m", "").replace("\x1b[0m", "") == render_table(
        COLUMNS, rows, width=None, colour=False
    )


def test_wide_characters_take_two_places_and_combining_ones_none() -> None:
    assert text_width("注文") == 4
    assert text_width("e\u0301") == 1
    text = render_table(COLUMNS, [("注文", "1"), ("abcd", "2")], width=None, colour=False)
    assert [text_width(line) for line in text.splitlines()[1:]] == [11, 11]
    assert cut("注文注文", 5) == "注文…"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b]0;title\x07", r"\x1b[31mred\x1b]0;title\x07"),
        ("a\r\nb\tc", r"a\x0d\x0ab\x09c"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\x9b2J", r"\x9b2J"),
        ("octet \udcff", r"octet \xff"),
        ("\U000e0001tag", r"\U000e0001tag"),
        ("süß 注文 ✓", "süß 注文 ✓"),
    ],
)
def test_what_could_drive_a_terminal_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_lines_may_be_kept_but_no_carriage_return() -> None:
    assert printable("a\n\tb\rc\x1b", keeps_lines=True) == "a\n\tb\\x0dc\\x1b"


def test_a_cell_can_not_drive_the_terminal_either() -> None:
    text = render_table(COLUMNS, [(TableCell("\x1b[2J", "red"), "\n1")], width=None, colour=False)
    assert text.splitlines()[1] == r"\x1b[2J  \x0a1"


def test_a_sparkline_has_a_bar_for_anything_above_nothing() -> None:
    assert sparkline([0, 1, 50, 100]) == " ▁▄█"
    assert sparkline([0, 0]) == "  "
    assert sparkline([1, 1_000_000])[0] == "▁"
    assert sparkline([]) == ""


@pytest.mark.parametrize(
    ("duration_ms", "text"), [(-5, "0s"), (0, "0s"), (999, "0s"), (61_000, "1m"), (90_000_000, "1d"), (7_200_000, "2h")]
)
def test_durations_are_said_in_their_largest_unit(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text


def test_moments_are_utc_and_impossible_ones_are_said_plainly() -> None:
    assert moment_text(1_767_268_800_000) == "2026-01-01T12:00:00Z"
    assert moment_text(None) == "-"
    assert moment_text(10**18) == "1000000000000000000 ms since 1970"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (999_999, "1.0 MB"), (16_800_000, "16.8 MB")]
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


def test_counts_have_their_noun() -> None:
    assert counted(1, "dead letter") == "1 dead letter"
    assert counted(12_431, "dead letter") == "12,431 dead letters"
    assert counted(2, "entry", "entries") == "2 entries"
