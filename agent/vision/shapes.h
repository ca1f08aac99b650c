// Shapes in a map of pixels, as OpenCV has them: their borders (borders.cc), rectangles at any angle around points, and
// the pixels inside of these (turned_box.cc).
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "vision/frame.h"
#include "vision/results.h"

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

constexpr double kPi = 3.14159265358979323846;

struct TurnedBox {
  std::array<Point, 4> corners;  // one after another around it
  float shorter_side;
};

// The rectangle of the least area around points, one at least. Its numbers are those of OpenCV's minAreaRect and
// boxPoints, to the last bit where that can be told: what cuts them off to whole pixels would differ by one otherwise.
TurnedBox LeastBoxAround(const std::vector<Pixel>& points);

// The pixels of a convex polygon and those that its sides are drawn with: of each row from `top` on, the first and the
// last.
struct Filled {
  int top;
  std::vector<std::pair<int, int>> rows;
};
Filled FilledBetween(const std::array<Pixel, 4>& corners);

}  // namespace agent
