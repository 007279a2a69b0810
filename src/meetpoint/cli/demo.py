"""`meetpoint demo`: the story told to a newcomer, on embedded data, in a minute or two."""

from __future__ import annotations

from decimal import Decimal

from rich.console import Console
from rich.table import Table

from meetpoint.errors import FilterError
from meetpoint.language import FilterParser, Schema, parse_filter
from meetpoint.matching import Scan

__all__ = ["tell"]

SCHEMA = """
name: ticks
attributes:
  exchange: string
  symbol: string
  price: {type: decimal, min: 0, max: 1000, precision: 0.01}
  volume: {type: integer, min: 0}
  halted: boolean
"""

TICKS = [
    {"exchange": "NYSE", "symbol": "OTE", "price": Decimal("8.40"), "volume": 1200, "halted": False},
    {"exchange": "NYSE", "symbol": "OTP", "price": Decimal("8.75"), "volume": 90000, "halted": False},
    {"exchange": "NASDAQ", "symbol": "OTEX", "price": Decimal("31.02"), "volume": 4100, "halted": False},
    {"exchange": "LSE", "symbol": "BARC", "price": Decimal("2.31"), "halted": True},
    {"exchange": "XETRA", "symbol": "SAP", "price": Decimal("8.70"), "volume": 15},
]

FILTERS = {
    "ann": "exchange = 'NYSE' AND price BETWEEN 8.30 AND 8.70 AND symbol LIKE 'OT%'",
    "bob": "volume >= 1e4 OR halted",
    "cem": "exchange LIKE 'N%E'",
    "dia": "NOT (price > 8.70) AND volume IS NOT NULL",
    "eve": "NOT halted AND symbol != 'OTE'",
}

MISTAKE = "price > 8 AND upper(symbol) = 'OTE'"


def tell(console: Console, *, with_spark: bool) -> None:
    """All acts, in order."""
    answer = _who_gets_what(console)
    _a_mistake(console)
    if with_spark:
        _a_second_opinion(console, answer)


def _who_gets_what(console: Console) -> dict[str, list[int]]:
    console.rule("[bold]Five subscribers, five events")
    parser = FilterParser(Schema.from_yaml(SCHEMA))
    scan: Scan[str] = Scan()
    for name, text in FILTERS.items():
        scan.add(name, parser.parse(text))
    events = Table(title="events", title_justify="left")
    for column in ("#", "exchange", "symbol", "price", "volume", "halted", "goes to"):
        events.add_column(column, justify="right" if column in "#pricevolume" else "left")
    answer: dict[str, list[int]] = {name: [] for name in FILTERS}
    for number, tick in enumerate(TICKS):
        names = scan.match(tick)
        for name in names:
            answer[name].append(number)
        cells = [str(tick.get(name, "")) for name in ("exchange", "symbol", "price", "volume", "halted")]
        events.add_row(str(number), *cells, ", ".join(names) or "nobody")
    for name, text in FILTERS.items():
        console.print(f"  [bold]{name}[/bold] wants  {text}", highlight=False)
    console.print(events)
    console.print("A missing attribute is NULL, as in SQL: event 4 has no [bold]halted[/bold], so eve is spared it.\n")
    return answer


def _a_mistake(console: Console) -> None:
    console.rule("[bold]A filter that cannot be")
    try:
        parse_filter(MISTAKE)
    except FilterError as error:
        console.print(f"{error.pointer()}\n{error}\n", highlight=False, markup=False)


def _a_second_opinion(console: Console, answer: dict[str, list[int]]) -> None:
    from meetpoint.spark import session, spark_schema

    console.rule("[bold]The same filters as Spark SQL's WHERE")
    with console.status("starting Spark …"):
        spark = session("local[2]")
        schema = Schema.from_yaml(SCHEMA)
        rows = [{"event": number, **tick} for number, tick in enumerate(TICKS)]
        columns = spark_schema(schema).add("event", "int")
        frame = spark.createDataFrame([tuple(row.get(c) for c in columns.names) for row in rows], columns)
        opinion = {
            name: sorted(row.event for row in frame.where(text).select("event").collect())
            for name, text in FILTERS.items()
        }
        spark.stop()
    table = Table()
    table.add_column("subscriber")
    table.add_column("Meetpoint")
    table.add_column("Spark SQL")
    for name in FILTERS:
        table.add_row(name, str(answer[name]), str(opinion[name]))
    console.print(table)
    agree = answer == opinion
    console.print("[green]They agree." if agree else "[red]They differ: please report this.")
