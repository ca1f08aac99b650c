#include "vision/masks.h"

#include <algorithm>
#include <cmath>

#include "vision/outputs.h"
#include "vision/resize.h"

namespace agent {
namespace {

// The first and the last row or column of an image in a map.
struct Span {
  int first;
  int last;
};

struct Borders {
  double begin;
  double end;
};

// The borders of the image in a map of so many rows or columns.
Borders BordersIn(double offset, int image, double scale, int network, int size) {
  const double part = static_cast<double>(size) / network;
  return {offset * part, (offset + image * scale) * part};
}

bool AreWhole(const Borders& borders) {
  return std::fabs(borders.begin - std::nearbyint(borders.begin)) < 1e-3 &&
         std::fabs(borders.end - std::nearbyint(borders.end)) < 1e-3;
}

Span SpanOf(const Borders& borders, int size) {
  const int first = static_cast<int>(std::min(std::max(std::nearbyint(borders.begin), 0.0), size - 1.0));
  const int last = static_cast<int>(std::min(std::max(std::nearbyint(borders.end), first + 1.0), double(size)));
  return {first, last};
}

}  // namespace

std::vector<float> OnImage(std::vector<float> values, Size size, const Frame& frame, bool nearest) {
  const auto resized = [&](const std::vector<float>& from, Size before, Size after) {
    return nearest ? Nearest(from, before, after) : Interpolated(from, before, after);
  };
  if (values.empty()) throw NotOfThisKind("it gives a map without cells");
  // Where the borders do not fall between the map's cells, it is enlarged, no more than is needed.
  Size larger = frame.network;
  Borders rows{};
  Borders columns{};
  for (const int factor : {1, 2, 4, 0}) {
    if (factor > 0) larger = {factor * size.height, factor * size.width};
    if (factor == 0) larger = frame.network;
    rows = BordersIn(frame.offset_y, frame.image.height, frame.scale_y, frame.network.height, larger.height);
    columns = BordersIn(frame.offset_x, frame.image.width, frame.scale_x, frame.network.width, larger.width);
    const bool enough = larger.height >= frame.network.height && larger.width >= frame.network.width;
    if ((AreWhole(rows) && AreWhole(columns)) || enough) break;
  }
  if (larger != size) values = resized(values, size, larger);
  const Span down = SpanOf(rows, larger.height);
  const Span across = SpanOf(columns, larger.width);
  std::vector<float> inside;
  for (int y = down.first; y < down.last; ++y) {
    const auto row = values.begin() + static_cast<std::ptrdiff_t>(y) * larger.width;
    inside.insert(inside.end(), row + across.first, row + across.last);
  }
  const Size part{down.last - down.first, across.last - across.first};
  return part == frame.image ? inside : resized(inside, part, frame.image);
}

std::optional<Mask> MaskIn(const Box& box, const std::vector<float>& values, Size image) {
  const auto clipped = [](float side, int most) {
    return std::min(std::max(static_cast<int>(std::ceil(side)), 0), most);
  };
  const int left = clipped(box.x1, image.width);
  const int top = clipped(box.y1, image.height);
  const int right = clipped(box.x2, image.width);
  const int bottom = clipped(box.y2, image.height);
  Mask mask{image.height, image.width, {}};
  int64_t begin = 0;  // of the run that goes on
  bool belongs = false;
  const auto change = [&](int64_t place) {
    mask.counts.push_back(place - begin);
    begin = place;
    belongs = !belongs;
  };
  for (int x = left; x < right; ++x) {
    const int64_t column = static_cast<int64_t>(x) * image.height;
    if (belongs && begin < column + top && top > 0) change(column);  // the column before ended so
    for (int y = top; y < bottom; ++y) {
      if ((values[static_cast<size_t>(y) * image.width + x] > 0) != belongs) change(column + y);
    }
    if (belongs && bottom < image.height) change(column + bottom);
  }
  const int64_t all = static_cast<int64_t>(image.height) * image.width;
  if (belongs) change(static_cast<int64_t>(right) * image.height);
  if (mask.counts.empty()) return std::nullopt;
  if (begin < all) change(all);
  return mask;
}

}  // namespace agent
