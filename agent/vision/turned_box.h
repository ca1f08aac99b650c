// Rectangles at any angle around points, and the pixels inside of them, as OpenCV has them.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "vision/borders.h"
#include "vision/results.h"

namespace agent {

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
