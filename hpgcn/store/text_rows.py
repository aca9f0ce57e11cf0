"""Write rows of tables as .csv and .tsv files."""
import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO


def write_rows(file: BinaryIO, delimiter: str, columns: Sequence, rows: Iterable[Any]) -> None:
    """Write the names of columns and then rows as UTF-8 text."""
    text = io.TextIOWrapper(file, "utf-8", newline="")
    writer = csv.writer(_LineWriter(text), delimiter=delimiter)
    writer.writerow(columns)
    writer.writerows(rows)
    text.flush()
    text.detach()


class _LineWriter:
    """Ends each row of a csv file with a single line feed instead of CR LF."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self.text = text

    def write(self, row: str) -> int:
        return self.text.write(row.removesuffix("\r\n") + "\n")
