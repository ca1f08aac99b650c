// The elements of tensors, in their types.
#pragma once

#include <builtin_fp16.h>

#include <cstdint>

#include "manifest.h"

namespace agent {

// float16
struct Half {
  uint16_t bits = 0;

  Half() = default;
  explicit Half(float value) : bits(__truncXfYf2__<float, uint32_t, 23, uint16_t, uint16_t, 10>(value)) {}
  explicit operator float() const { return __extendXfYf2__<uint16_t, uint16_t, 10, float, uint32_t, 23>(bits); }
  explicit operator double() const { return static_cast<float>(*this); }
};

// Calls `visit` with a zero of an element's type; truth values are uint8_t.
template <typename Visit>
auto WithElement(const ElementType& type, const Visit& visit) {
  const bool is_float = type.kind == 'f';
  const bool is_signed = type.kind == 'i';
  switch (type.bytes) {
    case 1:
      return is_signed ? visit(int8_t{}) : visit(uint8_t{});
    case 2:
      return is_float ? visit(Half{}) : is_signed ? visit(int16_t{}) : visit(uint16_t{});
    case 4:
      return is_float ? visit(float{}) : is_signed ? visit(int32_t{}) : visit(uint32_t{});
    default:
      return is_float ? visit(double{}) : is_signed ? visit(int64_t{}) : visit(uint64_t{});
  }
}

}  // namespace agent
