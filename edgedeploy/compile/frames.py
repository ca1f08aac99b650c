"""Networks that take frames as a camera gives them: what becomes of a frame before is the first function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.expressions import OPAQUE, constant
from edgedeploy.compile.operators.preparation import tables, write
from edgedeploy.network import CutOff, Network, Reference
from edgedeploy.tensors import TensorSpec
from edgedeploy.vision.camera import Preparation


def taking_frames(network: Network, preparation: Preparation) -> Network:
    """A network whose only input is a frame: uint8, of the camera's shape, under the name of the image input.

    Its reference prepares frames by OpenCV and numpy, and has the network's own run what comes out.
    """

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
        other_kernels=of_frames(network.other_kernels) if network.other_kernels else None,
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
    builder.update_func(
        module.get_global_var("main"), relax.Function([frame], body, main.ret_ty, main.is_pure, main.attrs)
    )
    return relax.transform.CanonicalizeBindings()(relax.transform.Normalize()(builder.get()))
