"""Places the functions of a network for a device: there, or on the CPU next to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from typing import Any

import tvm
from tvm import relax
from tvm.relax import TensorType, VDevice

from edgedeploy.compile.ir.expressions import Rewriter, bindings_of, calls_of, function_name, is_call, result_types
from edgedeploy.compile.schedules import Scheduled
from edgedeploy.target.board import Board

NO_SCHEDULE = "there is no schedule for it on the device"
LITTLE_WORK = "it is done before a kernel would begin, and its result leaves the device anyway"

_CALLER = ""  # the reader of the network's outputs

# The scope of the CPU's memory for TVM's memory planner: it lets tensors of one scope share storage, even on several
# devices. At run time there is one scope, "global".
_HOST = "host"

_COPY = "runtime.TVMTensorCopyFromTo"  # TVM's own function, in its runtime and in agents


def functions_on_cpu(module: tvm.IRModule, scheduled: Mapping[str, Scheduled], little_work: int) -> dict[str, str]:
    """The functions that run on the CPU, and why; `scheduled` are those with a template on the device.

    Others must. Functions of `little_work`, arithmetic operations that the CPU does before the device would begin, do
    if nothing on the device reads their results, as the softmax at the end of a classifier: their results are copied
    instead of their inputs, and no kernel is launched.
    """
    main = module["main"]
    missing = {function_name(call) for _, call in calls_of(main)} - set(scheduled)
    little = {name for name, entry in scheduled.items() if entry.operations <= little_work}
    readers = _readers(module)
    before = None
    while before != little:  # a function that stays on the device keeps the functions before it there
        before = little
        here = little | missing | {_CALLER}
        little = little - {function_name(call) for variable, call in calls_of(main) if readers[variable] - here}
    return dict.fromkeys(missing, NO_SCHEDULE) | dict.fromkeys(little, LITTLE_WORK)


def _readers(module: tvm.IRModule) -> dict[relax.Var, set[str]]:
    """The names of the functions that read each variable, also through views and tuples."""
    found: dict[relax.Var, set[str]] = defaultdict(set)

    def read(expression: Any, by: Set[str]) -> None:
        for variable in relax.analysis.free_vars(expression):
            found[variable] |= by

    read(module["main"].body.body, {_CALLER})
    for binding in reversed(bindings_of(module["main"])):
        call = is_call(binding.value, "relax.call_tir")
        read(binding.value, {function_name(binding.value)} if call else found[binding.var])
    return found


def with_copies(module: tvm.IRModule, on_cpu: Set[str], board: Board) -> tvm.IRModule:
    """A network whose functions named in `on_cpu` run on the CPU: tensors that change sides are copied once.

    Inputs and constants begin on the device; outputs stay where they were computed. `with_one_scope` must follow when
    memory is planned.
    """
    return _Copies.rewritten(module, on_cpu, board) if on_cpu else module


class _Copies(Rewriter):
    def __init__(self, module: tvm.IRModule, on_cpu: Set[str], board: Board) -> None:
        # The order of the virtual machine's devices; tensors without a device are on the first.
        self._cpu = VDevice(board.cpu_target(), memory_scope=_HOST)
        module.update_global_info("vdevice", [VDevice(board.target()), self._cpu])
        super().__init__(module)
        self._on_cpu = on_cpu
        self._copies: dict[Any, relax.Var] = {}

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if not is_call(call, "relax.call_tir"):
            return None
        here = function_name(call) in self._on_cpu
        arguments = [each if _is_here(each) == here else self._copied(each, here) for each in call.args[1].fields]
        types = [self._typed(each, here) for each in result_types(call)]
        return relax.call_tir(call.args[0], relax.Tuple(arguments), types)

    def _copied(self, tensor: relax.Expr, here: bool) -> relax.Var:
        if tensor not in self._copies:
            copy = relax.call_dps_packed(_COPY, relax.Tuple([tensor]), self._typed(tensor.ty, here))
            self._copies[tensor] = self.emit(copy)
        return self._copies[tensor]

    def _typed(self, kind: TensorType, here: bool) -> TensorType:
        return TensorType(kind.shape, kind.dtype, self._cpu if here else None)


def with_one_scope(module: tvm.IRModule) -> tvm.IRModule:
    """A network with planned memory, in the one scope that the virtual machine can allocate."""
    return _OneScope.walked(module) if module.global_infos.get("vdevice") else module


class _OneScope(Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if not is_call(call, "relax.vm.alloc_storage"):
            return None
        *arguments, _scope = call.args
        return relax.Call(call.op, [*arguments, tvm.ir.StringImm("global")], call.attrs, call.ty_args)


def _is_here(tensor: relax.Expr) -> bool:
    """Whether a tensor is in the CPU's memory."""
    device = tensor.ty.vdevice
    return device is not None and device.memory_scope == _HOST
