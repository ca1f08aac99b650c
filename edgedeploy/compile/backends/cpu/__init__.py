"""A board's CPU."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from typing_extensions import override

from edgedeploy.compile import layers
from edgedeploy.compile.backend import Backend, Generated
from edgedeploy.compile.backends.cpu import codegen, steps, traffic
from edgedeploy.compile.backends.cpu.columns import ColumnStrategy
from edgedeploy.compile.backends.cpu.configuration import Columns, Depthwise, Direct, Product, Steps, Winograd
from edgedeploy.compile.backends.cpu.depthwise import DepthwiseStrategy
from edgedeploy.compile.backends.cpu.integer_strategy import FloatStrategy, IntegerStrategy
from edgedeploy.compile.backends.cpu.pairs import PairStrategy
from edgedeploy.compile.backends.cpu.schedules import TEMPLATES
from edgedeploy.compile.backends.cpu.strategy import BatchMatmulStrategy, ConvolutionStrategy, DenseStrategy
from edgedeploy.compile.backends.cpu.tiles import whole_columns
from edgedeploy.compile.ir.types import FLOAT32, LayerTypes, bytes_of, lanes_for, limits_of
from edgedeploy.compile.strategy import WORTHWHILE, Several, Strategy
from edgedeploy.compile.tiles import padded_count

_STRATEGIES: dict[type, type[Strategy[Any]]] = {
    layers.Convolution: ConvolutionStrategy,
    layers.FirstConvolution: ConvolutionStrategy,
    layers.DepthwiseConvolution: DepthwiseStrategy,
    layers.Dense: DenseStrategy,
    layers.BatchMatmul: BatchMatmulStrategy,
}


class CpuBackend(Backend):
    """A board's CPU, which runs everything that no other backend takes."""

    forms = (Direct, Winograd, Depthwise, Product, Steps, Columns)
    templates = TEMPLATES

    @override
    def strategy(self, layer: layers.AnyAnchorOp) -> Strategy[Any]:
        kinds = IntegerStrategy, ColumnStrategy, PairStrategy
        integers = next((found for kind in kinds if (found := kind.of(layer, self.board))), None)
        usual = integers or _STRATEGIES[type(layer)](layer, self.board)
        floats = FloatStrategy.of(layer, self.board)
        return Several(layer, self.board, (usual, floats)) if floats else usual

    def padded_channels(self, channels: int, pixels: int, types: LayerTypes) -> int:
        """The channels that a convolution needs to be computed in whole vectors: at least those of its result."""
        wanted = padded_count(channels, lanes_for(self.board, types.accumulator))
        return whole_columns(1, channels, wanted, types, self.board) if pixels == 1 else wanted

    @property
    def has_half(self) -> bool:
        """Whether it has instructions for arithmetic in half precision."""
        return steps.has_half(self.board)

    @property
    def widens_half(self) -> bool:
        """Whether vectors of half precision become single by an instruction; LLVM takes them apart on 32-bit ARM."""
        return self.board.family == "aarch64" or "f16c" in steps.cpu_features(self.board)

    def with_half_weights(self, layer: layers.AnyAnchorOp) -> layers.AnyAnchorOp | None:
        """A product whose weights are stored in half precision and widened as they are read, if that is faster.

        It is for weights that no cache holds, of few rows: faster on all cores, and no slower on one.
        """
        if not isinstance(layer, layers.Dense) or layer.types != FLOAT32 or not self.widens_half or self.board.device:
            return None
        if traffic.is_cached(bytes_of("float32") * math.prod(layer.weights), self.board):
            return None
        halved = layer.model_copy(update={"types": replace(FLOAT32, weights="float16")})
        costs = (DenseStrategy(each, self.board).cycles_from_memory() for each in (layer, halved))
        (single, single_on_all), (half, half_on_all) = costs
        return halved if half <= single and half_on_all < WORTHWHILE * single_on_all else None

    @property
    def fuses(self) -> bool:
        """Whether it rounds a product and a sum once, in one instruction."""
        return steps.fuses(steps.cpu_features(self.board))

    @property
    def activation_type(self) -> str:
        """The type in which quantised feature maps are stored: x86 multiplies uint8 by int8, ARM int8 by int8."""
        return "uint8" if self.board.is_x86 else "int8"

    def weight_type(self, weights: np.ndarray) -> str:
        """The type in which quantised weights less their zero point are stored: the narrowest that steps take.

        If two products are added in int16, those of -128 by -128 leave it.
        """
        possible = steps.all_steps(self.board)
        limits = {
            "int8": (-127 if any(step.adds_in_16_bits for step in possible) else -128, 127),
            "int16": steps.SUMS_OF_BYTES if any(step.adds_bytes for step in possible) else limits_of("int16"),
        }
        low, high = weights.min(initial=0), weights.max(initial=0)
        return next((dtype for dtype, (least, most) in limits.items() if least <= low and high <= most), "int32")

    @property
    def adds_to_convert(self) -> bool:
        """Whether additions turn small sums into floats faster than conversions do.

        Cortex-A76 and its kind have two units that add vectors of floats, and one that takes two cycles to convert one.
        """
        return self.board.family == "aarch64" and self.board.fma.per_cycle > 1

    @property
    def filters_in_float(self) -> bool:
        """Whether sums of single channels' bytes may be floats: on x86 without dot products of bytes."""
        types = LayerTypes(self.activation_type, "int8", "int32", "int32")
        return self.board.is_x86 and not steps.word_steps(types, self.board)

    @override
    def generate(self, functions: tvm.IRModule, folder: Path) -> Generated:
        return codegen.generate(functions, tvm.target.Target(self.board.cpu_target()), folder)

    @override
    def write_objects(self, functions: tvm.IRModule, folder: Path) -> None:
        codegen.write_object(functions, tvm.target.Target(self.board.cpu_target()), folder / "code.o")
