"""TVM's importer of TensorFlow Lite's operators, with our own translations before its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import tvm
from tvm.relax.frontend.tflite import from_tflite

from edgedeploy.errors import ModelError, last_line
from edgedeploy.frontends.tflite_operators import TRANSLATIONS
from edgedeploy.frontends.tflite_quantised import QuantisedConverter
from edgedeploy.frontends.tflite_recurrent import conversions

_HINTS = ["convert the network without it, or cut the network before this node"]


def import_model(model: Any) -> tvm.IRModule:
    """Translate a model of the schema's class `Model`, whose shapes are fixed."""
    builders: list[Any] = []

    class Converter(_Converter):
        """Leaves its builder with us."""

        def __init__(self, model: Any, subgraph: Any, expressions: Any, builder: Any, *others: Any) -> None:
            super().__init__(model, subgraph, expressions, builder, *others)
            builders.append(builder)

    try:
        module = from_tflite(model, op_converter=Converter)
    except Exception:
        for builder in builders:
            with suppress(Exception):
                builder._end_block()  # TVM would warn of it, below our own message
        raise
    # TVM keeps the weights a second time in an attribute.
    module["main"] = module["main"].without_attr("params")
    return module


class _Converter(QuantisedConverter):
    """Adds our translations, and names the operator and its node in every failure.

    Nodes of these files have no names: they are called by their first output.
    """

    convert_map: dict[str, Callable[..., Any]]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        every: dict[str, Callable[..., Any]] = self.convert_map | conversions(self)
        every |= {name: self._ours(translation) for name, translation in TRANSLATIONS.items()}
        self.convert_map = {name: self._named(name, convert) for name, convert in every.items()}

    def get_op_code_str(self, op: Any) -> str:
        """The name of an operator; of a custom one its own."""
        code = self.model.OperatorCodes(op.OpcodeIndex())
        custom = (code.CustomCode() or b"").decode(errors="replace")
        return custom if custom in TRANSLATIONS else str(_known_name(super().get_op_code_str, op, custom))

    def check_unsupported_ops(self) -> None:
        """Refuse the first operator that nobody translates, or that has a malformed tensor, naming its node."""
        for index in range(self.subgraph.OperatorsLength()):
            operator = self.subgraph.Operators(index)
            name = self.get_op_code_str(operator)
            if name not in self.convert_map:
                raise ModelError(f"operator {name} is not supported", why=self._needed_by(operator), hints=_HINTS)
            with self._naming(name, operator):
                self.get_input_tensors(operator)
                self.get_output_tensors(operator)

    def _ours(self, translation: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
        return lambda op: translation(self, op)

    def _named(self, name: str, convert: Callable[..., Any]) -> Callable[[Any], Any]:
        def converted(op: Any) -> Any:
            with self._naming(name, op):
                self.prepare(name, op)
                made = convert(op=op)
                return None if made is None else self.quantised(name, op, self.bb.normalize(made))

        return converted

    @contextmanager
    def _naming(self, name: str, op: Any) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            why = error.cause if isinstance(error, ModelError) else last_line(error)
            raise ModelError(
                f"operator {name} cannot be imported", why=f"node {self._node(op)!r}: {why}", hints=_HINTS
            ) from error

    def _needed_by(self, op: Any) -> str:
        return f"node {self._node(op)!r} needs it"

    def _node(self, op: Any) -> str:
        outputs = op.OutputsAsNumpy()
        place = int(outputs[0]) if op.OutputsLength() else -1
        name = self.subgraph.Tensors(place).Name() if place >= 0 else None
        return name.decode(errors="replace") if name else "?"


def _known_name(named: Callable[[Any], Any], op: Any, custom: str) -> str:
    try:
        return str(named(op))
    except NotImplementedError:
        return f"{custom or '?'} (custom)"
