#include "comparison.h"

#include <builtin_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "failure.h"

namespace agent {
namespace {

template <typename Element>
double Value(const char* data) {
  Element element;
  std::memcpy(&element, data, sizeof element);
  return static_cast<double>(element);
}

double HalfValue(const char* data) {
  uint16_t bits;
  std::memcpy(&bits, data, sizeof bits);
  return static_cast<double>(__extendXfYf2__<uint16_t, uint16_t, 10, float, uint32_t, 23>(bits));
}

using Reader = double (*)(const char*);

Reader ReaderOf(const ElementType& type) {
  switch (type.bytes) {
    case 1:
      return type.kind == 'i' ? Value<int8_t> : Value<uint8_t>;
    case 2:
      return type.kind == 'f' ? HalfValue : type.kind == 'i' ? Value<int16_t> : Value<uint16_t>;
    case 4:
      return type.kind == 'f' ? Value<float> : type.kind == 'i' ? Value<int32_t> : Value<uint32_t>;
    default:
      return type.kind == 'f' ? Value<double> : type.kind == 'i' ? Value<int64_t> : Value<uint64_t>;
  }
}

double Difference(double found, double expected) {
  if (found == expected || (std::isnan(found) && std::isnan(expected))) return 0;
  if (!std::isfinite(found) || !std::isfinite(expected)) return std::numeric_limits<double>::infinity();
  return std::abs(found - expected);
}

}  // namespace

Comparison Compare(const TensorSpec& spec, const void* found, const void* expected, double relative, double absolute) {
  const Reader value = ReaderOf(spec.type);
  Comparison comparison{0, 0};
  double largest = 0;
  for (size_t offset = 0; offset < spec.bytes; offset += static_cast<size_t>(spec.type.bytes)) {
    const double wanted = value(static_cast<const char*>(expected) + offset);
    const double difference = Difference(value(static_cast<const char*>(found) + offset), wanted);
    comparison.largest_difference = std::max(comparison.largest_difference, difference);
    if (std::isfinite(wanted)) largest = std::max(largest, std::abs(wanted));
  }
  comparison.allowed = relative * largest + absolute;
  return comparison;
}

}  // namespace agent
