"""Which version of each operator of ONNX is understood.

An operator of a newer opset may mean something else under the same name. Those of this table were read in ONNX's
Changelog.md: they took more types, or an attribute that is used here. Any other is understood up to opset 21.
"""

from __future__ import annotations

_OF_ALL_OTHERS = 21

_OF_NEWER_OPSETS = {
    22: "Acos Acosh Asin Asinh Atan Atanh AveragePool Bernoulli Conv ConvTranspose Cos Cosh DeformConv Det Dropout Elu "
    "EyeLike GRU GlobalAveragePool GlobalLpPool GlobalMaxPool GridSample HardSigmoid HardSwish InstanceNormalization "
    "LSTM LpNormalization LpPool MaxPool MaxRoiPool MaxUnpool Mish Multinomial NegativeLogLikelihoodLoss RNN "
    "RandomNormal RandomNormalLike RandomUniform RandomUniformLike RoiAlign Round Selu Sin Sinh Softplus Softsign Tan "
    "ThresholdedRelu",
    23: "RMSNormalization RotaryEmbedding",
    24: "SplitToSequence Swish TensorScatter TopK",
    25: "Attention Cast CastLike Constant ConstantOfShape DequantizeLinear Flatten Identity If Loop Pad QuantizeLinear "
    "Reshape Scan Shape Size Squeeze Transpose Unsqueeze",
    26: "BitCast CumProd",
    27: "CausalConvWithState LinearAttention Range",
    28: "BitShift Celu Compress DepthToSpace Einsum Mod OneHot ReduceLogSum ReduceLogSumExp SpaceToDepth SwiGLU Unique",
}

# The newest version that is understood, by operator.
_NEWEST = {name: version for version, names in _OF_NEWER_OPSETS.items() for name in names.split()}


def newest_version(operator: str) -> int:
    """The newest version of an operator that is understood, as the number of the opset that brought it."""
    return _NEWEST.get(operator, _OF_ALL_OTHERS)
