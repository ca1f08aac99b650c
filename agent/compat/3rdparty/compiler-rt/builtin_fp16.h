// Conversion between binary floating-point formats of IEEE 754-2008, under the names of LLVM's compiler-rt.
// A format is given by its type, the unsigned integer type of its width, and the bits of its fraction.
#pragma once

#include <cstdint>
#include <cstring>

namespace edgedeploy_float {

// The fields of a format: sign, exponent, fraction, from the highest bit down (IEEE 754-2008, section 3.4).
template <typename Bits, int kFractionBits>
struct Format {
  static constexpr int kFraction = kFractionBits;
  static constexpr int kExponent = static_cast<int>(sizeof(Bits)) * 8 - 1 - kFractionBits;
  static constexpr int kLargest = (1 << kExponent) - 1;  // the exponent of infinities and NaN
  static constexpr int kBias = kLargest / 2;
  static constexpr Bits kFractionMask = (Bits(1) << kFractionBits) - 1;
};

// value / 2^shift, rounded to the nearest integer, and halfway to the even one. `shift` is at least 1.
template <typename Bits>
Bits ShiftRightRounded(Bits value, int shift) {
  if (shift >= static_cast<int>(sizeof(Bits)) * 8) return 0;
  const Bits kept = value >> shift;
  const Bits rest = value & ((Bits(1) << shift) - 1);
  const Bits half = Bits(1) << (shift - 1);
  return kept + (rest > half || (rest == half && (kept & 1)) ? 1 : 0);
}

}  // namespace edgedeploy_float

// To a narrower format, rounded to nearest, ties to even; NaN stays NaN, and becomes quiet.
template <typename From, typename FromBits, int kFromFraction, typename To, typename ToBits, int kToFraction>
inline To __truncXfYf2__(From value) {
  using namespace edgedeploy_float;
  using Wide = Format<FromBits, kFromFraction>;
  using Narrow = Format<ToBits, kToFraction>;
  constexpr int kDropped = kFromFraction - kToFraction;

  FromBits bits;
  std::memcpy(&bits, &value, sizeof bits);
  const int exponent = static_cast<int>((bits >> kFromFraction) & Wide::kLargest);
  const FromBits fraction = bits & Wide::kFractionMask;
  constexpr FromBits kInfinity = FromBits(Narrow::kLargest) << kToFraction;

  FromBits magnitude;
  if (exponent == Wide::kLargest) {
    magnitude = kInfinity;
    if (fraction) magnitude |= (FromBits(1) << (kToFraction - 1)) | (fraction >> kDropped);
  } else {
    const FromBits significand = exponent ? fraction | (FromBits(1) << kFromFraction) : fraction;
    const int narrow = (exponent ? exponent : 1) - Wide::kBias + Narrow::kBias;
    if (narrow > 0) {
      // The leading one of the significand adds 1 to the exponent, as does a carry from rounding.
      magnitude = (FromBits(narrow - 1) << kToFraction) + ShiftRightRounded(significand, kDropped);
    } else {
      magnitude = ShiftRightRounded(significand, kDropped + 1 - narrow);
    }
    if (narrow >= Narrow::kLargest || magnitude > kInfinity) magnitude = kInfinity;
  }
  const FromBits sign = bits >> (sizeof(FromBits) * 8 - 1);
  const ToBits result = static_cast<ToBits>(magnitude | (sign << (sizeof(ToBits) * 8 - 1)));
  To converted;
  std::memcpy(&converted, &result, sizeof converted);
  return converted;
}

// To a wider format; exact.
template <typename From, typename FromBits, int kFromFraction, typename To, typename ToBits, int kToFraction>
inline To __extendXfYf2__(From value) {
  using namespace edgedeploy_float;
  using Narrow = Format<FromBits, kFromFraction>;
  using Wide = Format<ToBits, kToFraction>;
  constexpr int kAdded = kToFraction - kFromFraction;

  FromBits bits;
  std::memcpy(&bits, &value, sizeof bits);
  int exponent = static_cast<int>((bits >> kFromFraction) & Narrow::kLargest);
  ToBits fraction = bits & Narrow::kFractionMask;

  ToBits magnitude = 0;
  if (exponent == Narrow::kLargest) {
    magnitude = (ToBits(Wide::kLargest) << kToFraction) | (fraction << kAdded);
  } else if (exponent || fraction) {
    if (!exponent) {
      // The wider format has room for what is subnormal in the narrow one.
      for (exponent = 1; !(fraction >> kFromFraction); --exponent) fraction <<= 1;
      fraction &= Narrow::kFractionMask;
    }
    magnitude = (ToBits(exponent - Narrow::kBias + Wide::kBias) << kToFraction) | (fraction << kAdded);
  }
  const ToBits sign = bits >> (sizeof(FromBits) * 8 - 1);
  const ToBits result = magnitude | (sign << (sizeof(ToBits) * 8 - 1));
  To converted;
  std::memcpy(&converted, &result, sizeof converted);
  return converted;
}
