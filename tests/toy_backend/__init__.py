"""A third backend: convolutions and dense layers as plain scalar loops on the CPU, to show what a backend consists of.

This module is its device, as profiles state it: `devices: [{backend: toy}]`. It imports nothing of the compiler.
"""

from typing import Literal

from edgedeploy.target.devices import Device

# What is added to `edgedeploy.target.devices.KINDS`: the one line outside of this folder.
KIND = {"toy": "toy_backend:Toy"}


class Toy(Device):
    """The device. Its functions run on the CPU, in its memory: it has no runtime."""

    backend: Literal["toy"] = "toy"
    unroll: bool = False

    compiler = "toy_backend.compiler:ToyBackend"
