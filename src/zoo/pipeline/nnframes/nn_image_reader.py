"""NNImageReader: images of files as a column of a Spark DataFrame."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from bigdl.transform.vision.opencv import given_paths
from bigdl.transform.vision.rows import ReadImages
from bigdl.util.common import get_spark_context
from zoo.orca.errors import InvalidArgumentError, PathNotFoundError
from zoo.pipeline.nnframes.nn_image_schema import SCHEMA


class NNImageReader:
    """Reads images for NNEstimator and NNModel.

    Example:
        df = NNImageReader.readImages("flowers/*/*.jpg", resizeH=224, resizeW=224)
        df.select("image.origin", "image.height").show()
    """

    @staticmethod
    def readImages(
        path: Any,
        sc: Any = None,
        minPartitions: int = 1,
        resizeH: int = -1,
        resizeW: int = -1,
        image_codec: int = -1,
        bigdl_type: str = "float",
    ) -> DataFrame:
        """A DataFrame with the column `image`: origin, height, width, nChannels, mode, and data as rows of BGR.

        Args:
            path: a file, a folder with the folders in it, a pattern, or several of these between commas.
            sc: the SparkContext; the active one, or a new one, if left out.
            minPartitions: how many partitions there are at least, as far as there are images.
            resizeH, resizeW: the size of the images; both, or none.
            image_codec: above 0 for colour, 0 for grey, below 0 for the images as they are.
        """
        if (resizeH > 0) != (resizeW > 0):
            raise InvalidArgumentError(
                f"resizeH and resizeW must be given both, or none, but are {resizeH} and {resizeW}."
            )
        if not isinstance(sc, SparkContext | None):
            raise InvalidArgumentError(
                f"sc must be the SparkContext, or None for the active one, but is a {type(sc).__name__}."
            )
        spark = SparkSession(get_spark_context() if sc is None else sc)
        paths = given_paths(path)
        files = _files(spark, paths, minPartitions)
        size = (resizeH, resizeW) if resizeH > 0 else None
        return files.mapInArrow(ReadImages(paths, size, image_codec), SCHEMA)


def _files(spark: SparkSession, paths: list[str], min_partitions: int) -> DataFrame:
    """The files, as rows of path and content; names that begin with '_' or '.' are left out by Spark."""
    source = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        files = source.load(paths).select("path", "content")
    except AnalysisException as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        raise PathNotFoundError(f"No such file or directory: {', '.join(paths)}. Spark says: {error}") from error
    if min_partitions > 1 and files.rdd.getNumPartitions() < min_partitions:
        files = files.repartition(min_partitions)
    return files
