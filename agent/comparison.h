// Outputs held against recorded ones.
#pragma once

#include "manifest.h"

namespace agent {

// The largest |difference| of two tensors, and what is allowed: relative * max|expected| + absolute. The difference is
// infinite where one value is not finite and the other is not equal to it; two NaN are equal.
struct Comparison {
  double largest_difference;
  double allowed;
  bool agrees() const { return largest_difference <= allowed; }
  // As a fraction of what is allowed.
  double fraction() const { return largest_difference == 0 ? 0 : largest_difference / allowed; }
};

// Both point to `spec.bytes` little-endian bytes.
Comparison Compare(const TensorSpec& spec, const void* found, const void* expected, double relative, double absolute);

}  // namespace agent
