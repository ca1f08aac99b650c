"""Schedule templates for CPUs.

Sizes of tiles come from the board profile: vector width, register count, cores.
"""

from __future__ import annotations

from edgedeploy.compile.backends.cpu.schedules import (
    columns,
    convolution,
    depthwise,
    general,
    integers,
    matmul,
    preparation,
    recurrence,
    rows,
    winograd,
    winograd_weights,
)
from edgedeploy.compile.schedules import Template
from edgedeploy.compile.schedules.matching import is_convolution, is_depthwise, is_product

# The template of convolutions and products of integers.
STEPS = "integer steps"

TEMPLATES = (
    Template(STEPS, integers.matches, integers.apply, narrows=True),
    Template("integer columns", columns.matches, columns.apply, narrows=True),
    Template("convolution", is_convolution, convolution.apply),
    Template("winograd convolution", winograd.matches, winograd.apply),
    Template("winograd weights", winograd_weights.matches, winograd_weights.apply),
    Template("depthwise convolution", is_depthwise, depthwise.apply),
    Template("matmul", is_product, matmul.apply),
    Template("recurrence", recurrence.matches, recurrence.apply),
    Template("rows", rows.matches, rows.apply),
    Template("frames", preparation.matches, preparation.apply),
    Template("general", general.matches, general.apply, narrows=True),
)
