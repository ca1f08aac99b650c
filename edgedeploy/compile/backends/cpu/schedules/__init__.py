"""Schedule templates for CPUs; vector width, registers and cores of the board's profile give the sizes of tiles."""

from __future__ import annotations

from edgedeploy.compile.backends.cpu.schedules import dense, depthwise, general, handwritten, integers, winograd
from edgedeploy.compile.operators.preparation import PREPARATION_ATTRIBUTE
from edgedeploy.compile.operators.recurrence import RECURRENCE_ATTRIBUTE
from edgedeploy.compile.operators.rows import ROWS_ATTRIBUTE
from edgedeploy.compile.schedules import Template, is_convolution, is_depthwise, is_product

TEMPLATES = (
    Template("integer steps", integers.matches, integers.apply, narrows=True),
    Template("integer columns", depthwise.is_by_columns, depthwise.columns, narrows=True),
    Template("convolution", is_convolution, dense.convolution),
    Template("winograd convolution", winograd.matches, winograd.apply),
    Template("winograd weights", winograd.transforms_weights, winograd.transform_weights),
    Template("depthwise convolution", is_depthwise, depthwise.depthwise),
    Template("matmul", is_product, dense.matmul),
    Template("recurrence", handwritten.has(RECURRENCE_ATTRIBUTE), handwritten.recurrence),
    Template("rows", handwritten.has(ROWS_ATTRIBUTE), handwritten.rows),
    Template("frames", handwritten.has(PREPARATION_ATTRIBUTE), handwritten.frames),
    Template("general", general.matches, general.apply, narrows=True),
)
