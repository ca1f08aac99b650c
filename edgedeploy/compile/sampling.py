"""Feature maps read where a grid says: the pixels and their weights are worked out once for all channels."""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import ir, relax, te, tirx

from edgedeploy.compile.expressions import shape_of
from edgedeploy.compile.fusion import OPAQUE

# The pixels around a place that bilinear interpolation reads.
_CORNERS = 4

_legalised = ir.Op.get("relax.image.grid_sample").get_attr("FLegalize")


def _grid_sample(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Bilinear interpolation of feature maps in NCHW at n x 2 x rows x columns places; anything else as TVM has it."""
    attrs, types = call.attrs, {str(each.ty.dtype) for each in (*call.args, call)}
    usual = attrs.method == "bilinear" and attrs.padding_mode in ("zeros", "border") and attrs.layout == "NCHW"
    if not usual or types != {"float32"} or len(shape_of(call)) != 4:
        return _legalised(builder, call)
    data, grid = call.args
    _, _, height, width = shape_of(data)
    apart = {"op_pattern": OPAQUE}

    def corner(size: int, place: Any, behind: Any) -> tuple[Any, Any]:
        """Along one axis, a pixel beside a place and its weight; `behind` says which of the two."""
        ends = _number(size - 1)
        span = (place + _number(1)) * _number(0.5)
        exact = span * ends if attrs.align_corners else span * _number(size) - _number(0.5)
        exact = tirx.max(tirx.min(exact, _number(size)), _number(-1))  # beyond, nothing changes any more
        first = tirx.floor(exact)
        pixel = first + tirx.Select(behind, _number(1), _number(0))
        weight = tirx.Select(behind, exact - first, _number(1) - (exact - first))
        if attrs.padding_mode == "zeros":
            weight = tirx.Select(tirx.all(pixel >= _number(0), pixel <= ends), weight, _number(0))
        return tirx.max(tirx.min(pixel, ends), _number(0)).astype("int32"), weight

    def at(grid: te.Tensor, n: Any, k: Any, y: Any, x: Any) -> tuple[Any, Any, Any]:
        row, down = corner(height, grid[n, 1, y, x], k >= 2)
        column, across = corner(width, grid[n, 0, y, x], tirx.floormod(k, 2) == 1)
        return row, column, down * across

    def part_of(grid: te.Tensor, part: int, name: str) -> te.Tensor:
        return te.compute(corners, lambda *index: at(grid, *index)[part], name=name)

    batch, _, rows, columns = shape_of(grid)
    corners = (batch, _CORNERS, rows, columns)
    from_rows, from_columns, weights = (
        builder.emit(
            builder.call_te(
                partial(part_of, part=part, name=name),
                grid,
                primfunc_name_hint=name,
                primfunc_attrs=apart,
            )
        )
        for part, name in enumerate(("from_rows", "from_columns", "weights"))
    )

    def sample(data: te.Tensor, from_rows: te.Tensor, from_columns: te.Tensor, weights: te.Tensor) -> te.Tensor:
        def value(n: Any, c: Any, y: Any, x: Any) -> Any:
            def term(k: int) -> Any:
                return data[n, c, from_rows[n, k, y, x], from_columns[n, k, y, x]] * weights[n, k, y, x]

            return term(0) + term(1) + term(2) + term(3)

        return te.compute(shape_of(call), value, name="sample")

    arguments = data, from_rows, from_columns, weights
    return builder.call_te(sample, *arguments, primfunc_name_hint="grid_sample", primfunc_attrs=apart)


def _number(value: float) -> Any:
    return tirx.const(value, "float32")


LEGALISATIONS = {"relax.image.grid_sample": _grid_sample}
