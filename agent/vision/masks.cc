#include "vision/masks.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "vision/outputs.h"
#include "vision/resize.h"

namespace agent {
namespace {

// The borders of an image in a map of `size` rows or columns, before they are rounded.
struct Borders {
  double begin;
  double end;
  int size;

  Borders(double offset, int image, double scale, int network, int count) : size(count) {
    const double part = static_cast<double>(size) / network;
    begin = offset * part;
    end = (offset + image * scale) * part;
  }
  bool AreWhole() const {
    return std::fabs(begin - std::nearbyint(begin)) < 1e-3 && std::fabs(end - std::nearbyint(end)) < 1e-3;
  }
  int First() const { return static_cast<int>(std::min(std::max(std::nearbyint(begin), 0.0), size - 1.0)); }
  int Last() const { return static_cast<int>(std::min(std::max(std::nearbyint(end), First() + 1.0), double(size))); }
};

}  // namespace

std::vector<float> OnImage(std::vector<float> values, Size size, const Frame& frame, bool nearest) {
  const auto resized = [&](const std::vector<float>& from, Size before, Size after) {
    return nearest ? Nearest(from, before, after) : Interpolated(from, before, after);
  };
  if (values.empty()) throw NotOfThisKind("it gives a map without cells");
  // Where the borders do not fall between the map's cells, it is enlarged, no more than is needed.
  const auto borders_in = [&](Size map) {
    return std::make_pair(Borders(frame.offset_y, frame.image.height, frame.scale_y, frame.network.height, map.height),
                          Borders(frame.offset_x, frame.image.width, frame.scale_x, frame.network.width, map.width));
  };
  Size larger = frame.network;
  for (const int factor : {4, 2, 1}) {
    const Size each{factor * size.height, factor * size.width};
    const auto [rows, columns] = borders_in(each);
    const bool enough = each.height >= frame.network.height && each.width >= frame.network.width;
    if ((rows.AreWhole() && columns.AreWhole()) || enough) larger = each;
  }
  if (larger != size) values = resized(values, size, larger);
  const auto [rows, columns] = borders_in(larger);
  std::vector<float> inside;
  for (int y = rows.First(); y < rows.Last(); ++y) {
    const auto row = values.begin() + static_cast<std::ptrdiff_t>(y) * larger.width;
    inside.insert(inside.end(), row + columns.First(), row + columns.Last());
  }
  const Size part{rows.Last() - rows.First(), columns.Last() - columns.First()};
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
    for (int y = 0; y < image.height; ++y) {
      const bool inside = y >= top && y < bottom && values[static_cast<size_t>(y) * image.width + x] > 0;
      if (inside != belongs) change(static_cast<int64_t>(x) * image.height + y);
    }
  }
  const int64_t all = static_cast<int64_t>(image.height) * image.width;
  if (belongs) change(static_cast<int64_t>(right) * image.height);
  if (mask.counts.empty()) return std::nullopt;
  if (begin < all) change(all);
  return mask;
}

}  // namespace agent
