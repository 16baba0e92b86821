"""Schemas as users write them, "a int, b string" or a StructType, without Spark for the simple types."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.orca.errors import InvalidArgumentError

if TYPE_CHECKING:
    import pyarrow as pa

# Spark's names and what Arrow calls the same; integers are widened afterwards, as everywhere.
ARROW_NAMES = {
    "boolean": "bool", "tinyint": "int8", "byte": "int8", "smallint": "int16", "short": "int16", "int": "int32",
    "integer": "int32", "bigint": "int64", "long": "int64", "float": "float32", "real": "float32",
    "double": "float64", "string": "string", "binary": "binary", "date": "date32", "timestamp": "timestamp[us]",
    "timestamp_ntz": "timestamp[us]",
}  # fmt: skip
PANDAS_TYPES = {"string": str, "float": "float32", "real": "float32", "double": "float64"}

_FIELD = re.compile(
    r"\s*(?:`(?P<quoted>[^`]+)`|(?P<name>\w+))\s*(?::\s*|\s)\s*(?P<type>\w+)\s*(?:\((?P<arguments>[\d\s,]+)\))?"
    r"(?:\s+not\s+null)?\s*(?:,|$)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Field:
    """A column's name and Spark type, in lower case."""

    name: str
    type: str

    @property
    def pandas_type(self) -> Any:
        """The dtype that pandas' CSV reader is given; None where it finds the type by itself."""
        return PANDAS_TYPES.get(self.type)

    @property
    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        if self.type.startswith("decimal"):
            precision, scale = self.type[8:-1].split(",")
            return pa.decimal128(int(precision), int(scale))
        return pa.type_for_alias(ARROW_NAMES[self.type])


def parse_schema(schema: Any) -> list[Field]:
    """The fields of a DDL string or of a StructType.

    >>> parse_schema("a int, `b c` string")
    [Field(name='a', type='int'), Field(name='b c', type='string')]
    """
    if isinstance(schema, str):
        return _parse_ddl(schema)
    fields = getattr(schema, "fields", None)
    if fields is None:
        raise InvalidArgumentError(
            f'schema must be a StructType or a text like "a int, b string", got a {type(schema).__name__}.'
        )
    return [_field(field.name, field.dataType.simpleString(), str(schema)) for field in fields]


def _parse_ddl(text: str) -> list[Field]:
    fields, at = [], 0
    while at < len(text.rstrip()):
        match = _FIELD.match(text, at)
        if match is None:
            raise InvalidArgumentError(
                f'Cannot read the schema {text!r} from {text[at:]!r} on. Write it as "a int, b string", with types '
                f"out of {', '.join(sorted(ARROW_NAMES))} and decimal(p, s)."
            )
        arguments = match["arguments"]
        kind = match["type"] if arguments is None else f"{match['type']}({arguments})"
        fields.append(_field(match["quoted"] or match["name"], kind, text))
        at = match.end()
    if not fields:
        raise InvalidArgumentError('The schema is empty. Write it as "a int, b string".')
    return fields


def _field(name: str, kind: str, schema: str) -> Field:
    kind = "".join(kind.lower().split())
    if kind == "decimal":
        kind = "decimal(10,0)"
    if re.fullmatch(r"decimal\(\d+\)", kind):
        kind = f"{kind[:-1]},0)"
    if kind not in ARROW_NAMES and not re.fullmatch(r"decimal\(\d+,\d+\)", kind):
        raise InvalidArgumentError(
            f"The type '{kind}' of column '{name}' in the schema {schema!r} is not known here. Known are "
            f"{', '.join(sorted(ARROW_NAMES))} and decimal(p, s)."
        )
    return Field(name, kind)
