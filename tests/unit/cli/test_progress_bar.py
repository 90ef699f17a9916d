"""How far an operation is: a bar for people, lines now and then for logs."""

from io import StringIO

from redrive.cli.progress_bar import ProgressBar


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_terminal_gets_one_line_that_is_drawn_again() -> None:
    clock, stream = Clock(), StringIO()
    progress = ProgressBar(stream=stream, total=1000, now_s=clock, is_terminal=True)
    progress.update(0)
    clock.now_s += 2
    progress.update(500, "3 refused")
    progress.end(1000)
    text = stream.getvalue()
    assert text.count("\n") == 1
    drawn = text.split("\r\x1b[2K")
    assert drawn[1] == "░" * 24 + "  0 of 1,000 sent  0%"
    assert drawn[2] == "█" * 12 + "░" * 12 + "  500 of 1,000 sent  50%  250/s  eta 2s  3 refused"
    assert drawn[3] == "█" * 24 + "  1,000 of 1,000 sent  100%  500/s\n"


def test_it_is_not_drawn_more_often_than_an_eye_sees() -> None:
    clock, stream = Clock(), StringIO()
    progress = ProgressBar(stream=stream, total=10_000, now_s=clock, is_terminal=True)
    for done in range(1000):
        clock.now_s += 0.001
        progress.update(done)
    assert 8 <= stream.getvalue().count("\r") <= 11


def test_elsewhere_there_is_a_plain_line_every_few_seconds_and_none_for_what_is_short() -> None:
    clock, stream = Clock(), StringIO()
    progress = ProgressBar(stream=stream, total=100, now_s=clock, is_terminal=False)
    progress.update(0)
    clock.now_s += 1
    progress.update(10)
    assert stream.getvalue() == ""
    clock.now_s += 4
    progress.update(50)
    progress.end(100)
    assert stream.getvalue() == "50 of 100 sent  50%  10/s  eta 5s\n"


def test_the_rate_is_that_of_the_last_seconds() -> None:
    clock = Clock()
    progress = ProgressBar(stream=StringIO(), total=0, now_s=clock, is_terminal=True)
    assert progress.rate_per_s is None
    progress.update(0)
    for second in range(1, 61):
        clock.now_s += 1
        progress.update(second * 1000 if second <= 30 else 30_000 + (second - 30))
    assert progress.rate_per_s == 1.0


def test_a_long_wait_before_the_last_seconds_counts_for_nothing() -> None:
    clock = Clock()
    progress = ProgressBar(stream=StringIO(), total=0, now_s=clock, is_terminal=True)
    progress.update(0)
    clock.now_s += 50
    progress.update(0)
    clock.now_s += 10
    progress.update(100)
    assert progress.rate_per_s == 10.0


def test_two_moments_that_are_one_say_nothing_of_a_rate() -> None:
    stream = StringIO()
    progress = ProgressBar(stream=stream, total=10, now_s=Clock(), is_terminal=True)
    progress.update(0)
    progress.update(5)
    assert progress.rate_per_s is None
    progress.end(10)
    assert stream.getvalue().endswith("  10 of 10 sent  100%\n")


def test_a_line_never_wraps() -> None:
    stream = StringIO()
    progress = ProgressBar(stream=stream, total=5, now_s=Clock(), is_terminal=True, width=20)
    progress.update(1, "x" * 100)
    assert len(stream.getvalue().removeprefix("\r\x1b[2K")) == 19


def test_nothing_drawn_leaves_no_empty_line() -> None:
    stream = StringIO()
    ProgressBar(stream=stream, total=5, now_s=Clock(), is_terminal=True).end()
    assert stream.getvalue() == ""
