"""TVM's importer of TensorFlow Lite's operators, with our own translations before its own, and NCHW behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import tvm
from tvm.relax.frontend.tflite import from_tflite

from edgedeploy.compile.integers.quantisation import has_quantisation, recognise, spell_out
from edgedeploy.compile.passes.constants import fold_around_integers
from edgedeploy.compile.passes.layouts import convert_layout, remove_transposes
from edgedeploy.compile.passes.unify import canonicalise
from edgedeploy.errors import ModelError
from edgedeploy.frontends.importing import failure
from edgedeploy.frontends.tflite import recurrent
from edgedeploy.frontends.tflite.operators import builtin, mediapipe
from edgedeploy.frontends.tflite.quantised import QuantisedConverter
from edgedeploy.frontends.tflite.reference import name_of

# Functions of TVM's converter and the operator, by the operator's name; they return what it computes.
TRANSLATIONS: dict[str, Callable[[Any, Any], Any]] = {
    **builtin.TRANSLATIONS,
    **mediapipe.TRANSLATIONS,
    **recurrent.TRANSLATIONS,
}

_HINTS = ["convert the network without it, or cut the network before this node"]


def import_model(model: Any) -> tvm.IRModule:
    """Translate a `Model` of the schema, whose shapes are fixed."""
    converters: list[_Converter] = []

    def converter(*arguments: Any) -> _Converter:
        converters.append(_Converter(*arguments))
        return converters[0]

    try:
        module = from_tflite(model, op_converter=converter)
    except Exception:
        with suppress(Exception):
            converters[0].bb._end_block()  # TVM would warn of it, below our own message
        raise
    module["main"] = module["main"].without_attr("params")  # TVM stores the weights a second time in an attribute
    return module


_LAYOUTS = {
    "relax.image.resize2d": ["NCHW"],
    "relax.nn.conv2d": ["NCHW", "OIHW"],
    "relax.nn.conv2d_transpose": ["NCHW", "IOHW"],
    "relax.nn.conv3d": ["NCDHW", "OIDHW"],
}


def in_nchw(module: tvm.IRModule) -> tvm.IRModule:
    """The module with convolutions and resizing of NHWC feature maps in NCHW, weights in OIHW, as the compiler expects.

    Operators between them follow, so that transposes remain at the edges only. Quantised weights stay integers.
    """
    quantised = has_quantisation(module)
    module = fold_around_integers(spell_out(module) if quantised else module)
    module = remove_transposes(fold_around_integers(convert_layout(canonicalise(module), _LAYOUTS)))
    return recognise(module) if quantised else module


class _Converter(QuantisedConverter):
    """Adds our translations, and names the operator and its node in every failure.

    Nodes of these files have no names: they are called by their first output.
    """

    convert_map: dict[str, Callable[..., Any]]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        every: dict[str, Callable[..., Any]] = self.convert_map
        every |= {name: partial(translation, self) for name, translation in TRANSLATIONS.items()}
        self.convert_map = {name: partial(self._converted, name, convert) for name, convert in every.items()}

    def get_op_code_str(self, op: Any) -> str:
        """The name of an operator; of a custom one its own."""
        custom = (self.model.OperatorCodes(op.OpcodeIndex()).CustomCode() or b"").decode(errors="replace")
        if custom in TRANSLATIONS:
            return custom
        try:
            return str(super().get_op_code_str(op))
        except NotImplementedError:
            return f"{custom or '?'} (custom)"

    def check_unsupported_ops(self) -> None:
        """Refuse the first operator that nobody translates, or that has a malformed tensor, naming its node."""
        for index in range(self.subgraph.OperatorsLength()):
            operator = self.subgraph.Operators(index)
            name = self.get_op_code_str(operator)
            if name not in self.convert_map:
                why = f"node {self._node(operator)!r} needs it"
                raise ModelError(f"operator {name} is not supported", why=why, hints=_HINTS)
            with self._naming(name, operator):
                self.get_input_tensors(operator)
                self.get_output_tensors(operator)

    def _converted(self, name: str, convert: Callable[..., Any], op: Any) -> Any:
        with self._naming(name, op):
            self.prepare(name, op)
            made = convert(op=op)
            return None if made is None else self.quantised(name, op, self.bb.normalize(made))

    @contextmanager
    def _naming(self, name: str, op: Any) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise failure(name, self._node(op), error, _HINTS) from error

    def _node(self, op: Any) -> str:
        place = int(op.Outputs(0)) if op.OutputsLength() else -1
        return (name_of(self.subgraph.Tensors(place)) if place >= 0 else "") or "?"
