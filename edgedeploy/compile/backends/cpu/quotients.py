"""Rounded quotients without divisions: float32 values, divided by a constant, and rounded to whole numbers.

QuantizeLinear divides by its scale. A division takes a core ten to thirty cycles for a vector; a product and a fused
multiply-add with two parts of the reciprocal take one or two (N. Brisebarre, J.-M. Muller, S. K. Raina, Accelerating
Correctly Rounded Floating-Point Division When the Divisor Is Known in Advance, IEEE Trans. Comput. 53(8), 2004).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx
from tvm.ir import Call, Op, _ffi_api, register_op_attr
from tvm.tirx import register_intrin_lowering

# Divisors between these: they, reciprocals and remainders of products are neither subnormal nor infinite.
_LEAST, _MOST = 2.0**-60, 2.0**60

# Floats that are tried on each side of a quotient halfway between two whole numbers: both methods turn over within one.
_NEIGHBOURS = 4


@dataclass(frozen=True)
class Reciprocal:
    """The reciprocal of a constant, as a sum of two float32: the nearest, and the rest."""

    first: np.float32
    second: np.float32

    def times(self, value: Any) -> Any:
        """The product with a float32 expression, rounded once, except in the product with the small part."""
        parts = (tirx.const(float(part), "float32") for part in (self.first, self.second))
        return tirx.call_intrin("float32", _PRODUCT, value, *parts)


def _by_multiply_adds(call: Call) -> Any:
    value, first, second = call.args
    numerator = tirx.Var("numerator", value.ty)
    product = tirx.call_llvm_pure_intrin(call.ty.dtype, "llvm.fma", numerator, first, numerator * second)
    return tirx.Let(numerator, value, product)


def _registered(name: str) -> str:
    """An operator of TensorIR's for such products: names of values are unique only when loops are no longer copied."""
    _ffi_api.RegisterOp(name, "a value times the two parts of a reciprocal")
    for attribute in ("TCallEffectKind", "TVectorizable"):
        register_op_attr(name, attribute, Op.get("tirx.exp").get_attr(attribute))
    register_op_attr(name, "TScriptPrinterName", name.removeprefix("tirx."))
    register_intrin_lowering(name, "llvm", f=_by_multiply_adds)
    return name


# Registered while this is imported, which happens once: functions are generated in several threads.
_PRODUCT = _registered("tirx.edgedeploy_times_reciprocal")


def reciprocal_for(divisor: float, low: float, high: float) -> Reciprocal | None:
    """The reciprocal whose products round to the same whole numbers, within bounds, as quotients do; None if none does.

    Quotient and product grow with the numerator: they round alike everywhere if they do next to each value halfway
    between two whole numbers.
    """
    divisor = float(np.float32(divisor))
    if not _LEAST < divisor < _MOST:
        return None
    found = Reciprocal(np.float32(1 / divisor), np.float32(1 / divisor - float(np.float32(1 / divisor))))
    halves = (np.arange(low, high) + 0.5) * divisor
    steps = np.arange(-_NEIGHBOURS, _NEIGHBOURS + 1, dtype=np.int32)
    numerators = (halves.astype(np.float32).view(np.int32)[:, np.newaxis] + steps).view(np.float32)
    small = (numerators * found.second).astype(np.float64)
    total = numerators.astype(np.float64) * np.float64(found.first) + small
    products = total.astype(np.float32)
    # float64 rounds the sum as well: halfway between two float32, it is not known which is right.
    beyond = np.nextafter(products, np.where(total < products, -np.inf, np.inf).astype(np.float32))
    between = total == (products.astype(np.float64) + beyond) / 2
    same = np.rint(products) == np.rint(numerators / np.float32(divisor))
    return found if same.all() and not between.any() else None
