"""Entry points of a package's library: for several shapes of the inputs, and for frames of a camera."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.ir.expressions import OPAQUE, Rewriter, constant, function_name, is_call, result_types
from edgedeploy.compile.operators.preparation import tables, write
from edgedeploy.model.network import CutOff, Network, Reference
from edgedeploy.model.tensors import TensorSpec
from edgedeploy.vision.frames import Preparation


def entry_name(place: int) -> str:
    """The name of the first, second, ... entry's function in a package's library."""
    return f"main_{place}" if place else "main"


def renamed(function: str, place: int) -> str:
    """The name of an entry's function among the functions of all entries."""
    return f"{function}_{entry_name(place)}" if place else function


def joined(modules: Sequence[tvm.IRModule]) -> tvm.IRModule:
    """One module with the functions of all networks of scheduled functions; the library stores equal constants once."""
    first, *others = modules
    for place, other in enumerate(others, 1):
        walk = relax.expr_functor.mutator(_Joiner)(first, other, place)
        main = walk.visit_expr(other["main"]).with_attr("global_symbol", entry_name(place))
        walk.builder_.add_func(main, entry_name(place))
        first = walk.builder_.get()
    return first


class _Joiner(Rewriter):
    """Gives the functions that another network calls names that are free in this one."""

    def __init__(self, module: tvm.IRModule, other: tvm.IRModule, place: int) -> None:
        super().__init__(module)
        self._added = {}
        for variable, function in other.functions.items():
            if variable.name_hint != "main":
                name = renamed(variable.name_hint, place)
                named = function.with_attr("global_symbol", name)
                self._added[variable.name_hint] = self.builder_.add_func(named, name)

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if not is_call(call, "relax.call_tir"):
            return None
        return relax.call_tir(self._added[function_name(call)], call.args[1], result_types(call))


def taking_frames(network: Network, preparation: Preparation) -> Network:
    """A network whose only input is a frame of uint8, which its reference prepares by OpenCV and numpy."""

    def of_frames(reference: Reference) -> Reference:
        def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            return reference({image.name: preparation.tensor(inputs[image.name])})

        return run

    [image] = network.inputs
    cut = network.cut_off
    return replace(
        network,
        module=_with_preparation(network.module, preparation),
        inputs=[TensorSpec(name=image.name, shape=list(preparation.camera.shape), dtype="uint8")],
        reference=of_frames(network.reference),
        other_kernels=[*map(of_frames, network.other_kernels)],
        second_opinion=of_frames(network.second_opinion) if network.second_opinion else None,
        by_operator=None,  # its inputs are images
        cut_off=CutOff(cut.tail, of_frames(cut.reference)) if cut else None,
    )


def _with_preparation(module: tvm.IRModule, preparation: Preparation) -> tvm.IRModule:
    builder = relax.BlockBuilder(module)
    function = write(preparation, 1, parallel=False).with_attr("op_pattern", OPAQUE)
    prepare = builder.add_func(function, "prepare_frame")
    main = module["main"]
    [image] = main.params
    frame = relax.Var("frame", relax.TensorType(preparation.camera.shape, "uint8"))
    arguments = [frame, *map(constant, tables(preparation))]
    call = relax.call_tir(prepare, relax.Tuple(arguments), relax.TensorType(preparation.shape, preparation.dtype))
    first = relax.DataflowBlock([relax.VarBinding(image, call)])
    body = relax.SeqExpr([first, *main.body.blocks], main.body.body)
    whole = relax.Function([frame], body, main.ret_ty, main.is_pure, main.attrs)
    builder.update_func(module.get_global_var("main"), whole)
    return relax.transform.CanonicalizeBindings()(relax.transform.Normalize()(builder.get()))
