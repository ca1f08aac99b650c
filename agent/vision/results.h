// What a network found in an image, as edgedeploy/vision/results.py has it.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "json.h"

namespace agent {

// In pixels of the image.
struct Point {
  float x;
  float y;
};

struct Box {
  float x1;
  float y1;
  float x2;
  float y2;
};

inline bool IsFinite(Point point) { return std::isfinite(point.x) && std::isfinite(point.y); }

// The box around corners.
Box Around(const std::array<Point, 4>& corners);

// The pixels of an image that belong to something: lengths of runs, column after column from the top, of pixels that do
// not belong to it, that do, and so on by turns. The first may be 0.
struct Mask {
  int height;
  int width;
  std::vector<int64_t> counts;
};

// A number for each pixel of an image, row by row; the least, the middle and the largest of those that are finite.
struct Surface {
  std::vector<float> values;
  float minimum;
  float median;
  float maximum;
};

// One thing found: a class of the whole image, an object in a box, a set of points. What is absent the network does not
// give.
struct Detection {
  std::string label;  // the class's name; its number where there are no names
  int64_t class_id = 0;
  std::optional<float> score;
  std::optional<Box> box;
  std::optional<std::array<Point, 4>> corners;  // around it, of a box that may be turned; `box` is around them
  std::vector<Point> points;                    // landmarks
  std::vector<float> point_scores;              // of each landmark
  std::vector<float> depths;                    // of each landmark, behind the middle of all, in pixels of the image
  std::optional<Mask> mask;
  std::optional<Surface> surface;

  // The object that `edgedeploy demo --json` prints for it.
  Json Describe() const;
};

}  // namespace agent
