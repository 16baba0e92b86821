"""What a DataFrame's column of images looks like: the same as that of Spark's own source "image"."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

IMAGE_FIELDS = [("origin", StringType()), ("height", IntegerType()), ("width", IntegerType()),
                ("nChannels", IntegerType()), ("mode", IntegerType()), ("data", BinaryType())]  # fmt: skip
SCHEMA = StructType([StructField("image", StructType([StructField(name, kind) for name, kind in IMAGE_FIELDS]))])


def with_origin_column(
    dataset: DataFrame, imageColumn: str = "image", originColumn: str = "origin", bigdl_type: str = "float"
) -> DataFrame:
    """The DataFrame with the paths of its images as a column of their own.

    Example: ``with_origin_column(NNImageReader.readImages("flowers")).select("origin")``
    """
    return dataset.withColumn(originColumn, dataset[imageColumn]["origin"])
