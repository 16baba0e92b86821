"""Relations: which of two texts belong together, by their names."""

from __future__ import annotations

from typing import Any

from zoo.orca.data.file import open_file
from zoo.orca.errors import InvalidArgumentError


class Relation:
    """Two ids, and whether (or how much) they belong together.

    Example: ``Relation("question1", "answer7", 1).to_tuple()``
    """

    def __init__(self, id1: str, id2: str, label: int, bigdl_type: str = "float"):
        self.id1 = id1
        self.id2 = id2
        self.label = int(label)

    def to_tuple(self) -> tuple[str, str, int]:
        return self.id1, self.id2, self.label

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Relation) and self.to_tuple() == other.to_tuple()

    def __hash__(self) -> int:
        return hash(self.to_tuple())

    def __repr__(self) -> str:
        return f"Relation [id1: {self.id1}, id2: {self.id2}, label: {self.label}]"


class Relations:
    """Reads files of relations."""

    @staticmethod
    def read(path: str, sc: Any = None, min_partitions: int = 1, bigdl_type: str = "float") -> Any:
        """The relations of a text or csv file without header, one "id1,id2,label" a line.

        Returns: a list; with a SparkContext an RDD.

        Example: ``Relations.read("relations.csv")``
        """
        with open_file(path, "r", encoding="utf-8") as file:
            lines = [line.strip() for line in file]
        relations = [_parsed(line, path, number) for number, line in enumerate(lines, 1) if line]
        return relations if sc is None else sc.parallelize(relations, min_partitions)

    @staticmethod
    def read_parquet(path: str, sc: Any, bigdl_type: str = "float") -> Any:
        """The relations of a Parquet file with columns id1, id2 and label, as an RDD."""
        from pyspark.sql import SparkSession

        frame = SparkSession(sc).read.parquet(path).select("id1", "id2", "label")
        return frame.rdd.map(lambda row: Relation(str(row["id1"]), str(row["id2"]), int(row["label"])))


def _parsed(line: str, path: str, number: int) -> Relation:
    parts = [part.strip() for part in line.split(",")]
    try:
        id1, id2, label = parts
        return Relation(id1, id2, int(label))
    except ValueError as error:
        raise InvalidArgumentError(
            f"Line {number} of {path} must be id1,id2,label with a whole number as label, but is {line!r}."
        ) from error
