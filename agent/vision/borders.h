// Borders of shapes in a map of pixels.
#pragma once

#include <cstdint>
#include <vector>

#include "vision/frame.h"

namespace agent {

struct Pixel {
  int x;
  int y;
};

inline bool operator==(Pixel a, Pixel b) { return a.x == b.x && a.y == b.y; }

// The outer borders and those of the holes of all shapes, whose pixels touch each other at sides or corners: each as
// the shape's pixels along it, the lowest border first, as OpenCV lists them. `mask` has 1 for pixels of shapes and 0
// for others, row by row.
std::vector<std::vector<Pixel>> BordersOf(const std::vector<uint8_t>& mask, Size size);

}  // namespace agent
