// Border following of Suzuki and Abe, Topological Structural Analysis of Digitized Binary Images by Border Following,
// 1985, their algorithm 1 without its tree of borders.
#include <algorithm>
#include <cstddef>

#include "vision/shapes.h"

namespace agent {
namespace {

// What a pixel is known as: none of a shape, of a shape, on a border that was followed, and such a one whose right
// neighbour is none of the shape.
enum : int8_t { kNothing = 0, kShape = 1, kFollowed = 2, kRightEnd = -2 };

// Of the eight neighbours, counterclockwise as an image is seen, from the right one on.
constexpr int kAround = 8;
constexpr int kRight = 0;
constexpr int kLeft = 4;
constexpr Pixel kSteps[kAround] = {{1, 0}, {1, -1}, {0, -1}, {-1, -1}, {-1, 0}, {-1, 1}, {0, 1}, {1, 1}};

// The pixels with one more around them, which are none of a shape.
class Canvas {
 public:
  Canvas(const std::vector<uint8_t>& mask, Size size)
      : width_(size.width + 2), pixels_(static_cast<size_t>(size.height + 2) * width_, kNothing) {
    for (int y = 0; y < size.height; ++y) {
      const uint8_t* row = mask.data() + static_cast<size_t>(y) * size.width;
      std::transform(row, row + size.width, &At({0, y}), [](uint8_t each) { return each ? kShape : kNothing; });
    }
  }
  int8_t& At(Pixel place) { return pixels_[static_cast<size_t>(place.y + 1) * width_ + place.x + 1]; }

  // The border on which `start` lies, whose neighbour at `from` is beside it.
  std::vector<Pixel> Follow(Pixel start, int from) {
    int direction = from;
    do {  // clockwise
      direction = (direction + kAround - 1) % kAround;
    } while (direction != from && At(Next(start, direction)) == kNothing);
    if (direction == from) {  // a single pixel
      At(start) = kRightEnd;
      return {start};
    }
    const Pixel last = Next(start, direction);
    std::vector<Pixel> border;
    for (Pixel place = start;;) {
      border.push_back(place);
      bool ends_at_right = false;
      do {  // counterclockwise, from where it came
        direction = (direction + 1) % kAround;
        ends_at_right = ends_at_right || (direction == kRight && At(Next(place, direction)) == kNothing);
      } while (At(Next(place, direction)) == kNothing);
      if (ends_at_right) {
        At(place) = kRightEnd;
      } else if (At(place) == kShape) {
        At(place) = kFollowed;
      }
      const Pixel next = Next(place, direction);
      if (next == start && place == last) return border;
      place = next;
      direction = (direction + kAround / 2) % kAround;
    }
  }

 private:
  static Pixel Next(Pixel place, int direction) {
    return {place.x + kSteps[direction].x, place.y + kSteps[direction].y};
  }

  size_t width_;
  std::vector<int8_t> pixels_;
};

}  // namespace

std::vector<std::vector<Pixel>> BordersOf(const std::vector<uint8_t>& mask, Size size) {
  Canvas canvas(mask, size);
  std::vector<std::vector<Pixel>> borders;
  for (int y = 0; y < size.height; ++y) {
    for (int x = 0; x < size.width; ++x) {
      if (canvas.At({x, y}) == kShape && canvas.At({x - 1, y}) == kNothing) {
        borders.push_back(canvas.Follow({x, y}, kLeft));
      }
      if (canvas.At({x, y}) > kNothing && canvas.At({x + 1, y}) == kNothing) {
        borders.push_back(canvas.Follow({x, y}, kRight));
      }
    }
  }
  std::reverse(borders.begin(), borders.end());
  return borders;
}

}  // namespace agent
