"""Products of activations with a matrix of constants: dense layers."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from edgedeploy.compile.operators.prefetch import prefetched
from edgedeploy.compile.types import LayerTypes

# What the template looks for: the beginning of the names of blocks that accumulate.
MATMUL = "matmul"


def product(
    data: te.Tensor, weights: te.Tensor, columns: int, types: LayerTypes, tile_rows: int, prefetch: int = 0
) -> te.Tensor:
    """Rows times a matrix.

    Args:
        data: rows x terms.
        weights: terms x at least `columns`; the columns beyond are computed and cropped.
        columns: of the result.
        types: of data and weights, of the sums, and of the result.
        tile_rows: how many rows the template computes at a time.
        prefetch: the values of the vectors of weights that are prefetched, or 0.

    Returns:
        rows x columns.
    """
    rows, terms = (int(size) for size in data.shape)
    whole_columns = int(weights.shape[1])
    term = te.reduce_axis((0, terms), "k")

    def sum_of_products(row: Any, column: Any) -> Any:
        first = tirx.floormod(row, tile_rows) == 0
        weight = prefetched(weights, (term, column), 0, first, prefetch)
        return te.sum(types.product(data[row, term], weight), axis=[term])

    whole = te.compute((rows, whole_columns), sum_of_products, name=MATMUL)
    if whole_columns == columns and whole.dtype == types.result:
        return whole
    return te.compute((rows, columns), lambda row, column: whole[row, column].astype(types.result), name="crop")
