"""Layers that have configurations to choose from: convolutions and products with constant weights."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, TypeAdapter

from edgedeploy.compile.layers.convolution import Convolution, FirstConvolution
from edgedeploy.compile.layers.depthwise import DepthwiseConvolution
from edgedeploy.compile.layers.layer import AnchorOp, Form
from edgedeploy.compile.layers.product import Dense

AnyAnchorOp = Convolution | FirstConvolution | DepthwiseConvolution | Dense

LAYER: TypeAdapter[AnyAnchorOp] = TypeAdapter(Annotated[AnyAnchorOp, Field(discriminator="kind")])

__all__ = [
    "LAYER",
    "AnchorOp",
    "AnyAnchorOp",
    "Convolution",
    "Dense",
    "DepthwiseConvolution",
    "FirstConvolution",
    "Form",
]
