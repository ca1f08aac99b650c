#include "vision/projection.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace agent {
namespace {

constexpr int kChannels = 3;

// Where the columns or rows of a network's input lie along one axis of an image: a whole pixel, and 32nds of one.
struct Spot {
  int first;
  int between;
};

constexpr int kSpotBits = 5;
constexpr int kSpots = 1 << kSpotBits;

// Corners are rounded to float32, as OpenCV takes them.
std::vector<Spot> SpotsOf(int count, double offset, double scale) {
  const double begin = static_cast<float>(-offset / scale);
  const double end = static_cast<float>((count - offset) / scale);
  std::vector<Spot> spots;
  for (int i = 0; i < count; ++i) {
    const double place = std::nearbyint((begin + i * ((end - begin) / count)) * kSpots);
    const double bounded = std::min(std::max(place, -32768.0 * kSpots), 32767.0 * kSpots);
    const int fixed = static_cast<int>(bounded);
    const int first = fixed >= 0 ? fixed / kSpots : -((-fixed + kSpots - 1) / kSpots);
    spots.push_back({first, fixed - first * kSpots});
  }
  return spots;
}

}  // namespace

Image Projected(const Image& image, Size size, const Frame& frame) {
  Image result(size.height, size.width);
  const auto along_x = SpotsOf(size.width, frame.offset_x, frame.scale_x);
  const auto along_y = SpotsOf(size.height, frame.offset_y, frame.scale_y);
  static constexpr uint8_t kBlack[kChannels] = {};
  const auto pixel = [&](int y, int x) {
    const bool inside = y >= 0 && y < image.height() && x >= 0 && x < image.width();
    return inside ? image.Row(y) + static_cast<size_t>(x) * kChannels : kBlack;
  };
  constexpr int kHalf = kSpots * kSpots / 2;
  for (int y = 0; y < size.height; ++y) {
    uint8_t* out = result.MutableRow(y);
    const Spot& row = along_y[y];
    for (const Spot& column : along_x) {
      const uint8_t* upper[] = {pixel(row.first, column.first), pixel(row.first, column.first + 1)};
      const uint8_t* lower[] = {pixel(row.first + 1, column.first), pixel(row.first + 1, column.first + 1)};
      for (int c = 0; c < kChannels; ++c) {
        const int above = upper[0][c] * (kSpots - column.between) + upper[1][c] * column.between;
        const int below = lower[0][c] * (kSpots - column.between) + lower[1][c] * column.between;
        *out++ = static_cast<uint8_t>((above * (kSpots - row.between) + below * row.between + kHalf) >> 2 * kSpotBits);
      }
    }
  }
  return result;
}

}  // namespace agent
