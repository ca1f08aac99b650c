"""Schedules for graphics processors: how the loops of one fused function become a kernel of many work-items.

These are TVM's own rules. `GeneralReduction` is not among them: it would take depthwise convolutions, and give each sum
of nine products to a whole work-group.
"""

from __future__ import annotations

import tvm
from tvm.s_tir import dlight
from tvm.s_tir.analysis import estimate_tir_flops

from edgedeploy.compile.schedules import Scheduled

# The first that takes a function schedules it; the last takes all.
RULES = (dlight.gpu.Matmul(), dlight.gpu.GEMV(), dlight.gpu.Reduction(), dlight.gpu.Fallback())


def schedule_function(function: tvm.tirx.PrimFunc, target: tvm.target.Target) -> Scheduled:
    """Schedule one function by the first of TVM's rules that takes it.

    Args:
        function: one operator or a fused group of them, as Relax's legalisation writes it.
        target: the device.
    """
    for rule in RULES:
        found = rule.apply(function, target, False)
        if found is None:
            continue
        [schedule] = found if isinstance(found, list) else [found]
        scheduled = schedule.mod["main"].with_attr("tirx.is_scheduled", True)
        operations = int(estimate_tir_flops(tvm.IRModule({"main": function})))
        return Scheduled(scheduled, type(rule).__name__, None, None, operations, parallel=True)
    raise ValueError(f"no rule of TVM's schedules {function.attrs['global_symbol']}")
