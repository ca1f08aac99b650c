"""Schedule templates for CPUs; vector width, registers and cores of the board's profile give the sizes of tiles."""

from edgedeploy.compile.backends.cpu.configuration import Columns, Steps
from edgedeploy.compile.backends.cpu.schedules import dense, depthwise, general, handwritten, integers, winograd
from edgedeploy.compile.backends.cpu.winograd import PRODUCT, WEIGHT_ROWS
from edgedeploy.compile.operators.preparation import PREPARATION_ATTRIBUTE
from edgedeploy.compile.operators.recurrence import RECURRENCE_ATTRIBUTE
from edgedeploy.compile.operators.rows import ROWS_ATTRIBUTE
from edgedeploy.compile.schedules import Template, is_convolution, is_depthwise, is_product

TEMPLATES = (
    Template("integer steps", lambda kernel: isinstance(kernel.configuration, Steps), integers.apply, narrows=True),
    Template(
        "integer columns", lambda kernel: isinstance(kernel.configuration, Columns), depthwise.columns, narrows=True
    ),
    Template("convolution", is_convolution, dense.convolution),
    Template("winograd convolution", lambda kernel: kernel.anchor() == PRODUCT, winograd.apply),
    Template("winograd weights", lambda kernel: WEIGHT_ROWS in kernel.names, winograd.transform_weights),
    Template("depthwise convolution", is_depthwise, depthwise.depthwise),
    Template("matmul", is_product, dense.matmul),
    Template("recurrence", handwritten.has(RECURRENCE_ATTRIBUTE), handwritten.recurrence),
    Template("rows", handwritten.has(ROWS_ATTRIBUTE), handwritten.rows),
    Template("frames", handwritten.has(PREPARATION_ATTRIBUTE), handwritten.frames),
    Template("general", lambda kernel: True, general.apply, narrows=True),
)
