#include "vision/resize.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace agent {
namespace {

constexpr int kChannels = 3;
constexpr int kWeightBits = 11;
constexpr float kWeightOne = 1 << kWeightBits;

uint8_t Level(double value) { return static_cast<uint8_t>(std::min(std::max(value, 0.0), 255.0)); }

// An output along one axis: two neighbours of the source with their weights.
template <typename Weight>
struct Between {
  int first;
  int second;
  Weight first_weight;
  Weight second_weight;
};
using Places = std::vector<Between<float>>;
using FixedPlaces = std::vector<Between<int>>;

template <typename Weight>
Weight Sum(Weight first, Weight second, const Between<Weight>& place) {
  return first * place.first_weight + second * place.second_weight;
}

// Beyond the border is the border.
Between<float> At(int whole, float fraction, int source) {
  return {std::clamp(whole, 0, source - 1), std::clamp(whole + 1, 0, source - 1), 1 - fraction, fraction};
}

// Tengine's: clamped to the border.
Places TenginePlaces(int source, int target) {
  const float scale = static_cast<float>(source) / static_cast<float>(target);
  Places all;
  for (int i = 0; i < target; ++i) {
    const float position =
        std::min(std::max((static_cast<float>(i) + 0.5f) * scale - 0.5f, 0.0f), static_cast<float>(source - 1));
    const float whole = std::floor(position);
    all.push_back(At(static_cast<int>(whole), position - whole, source));
  }
  return all;
}

// OpenCV's. Along x, what lies outside has the border's value alone; along y, both neighbours are the border.
Places LinearPlaces(int source, int target, bool along_x) {
  const double scale = 1.0 / (static_cast<double>(target) / source);
  Places all;
  for (int i = 0; i < target; ++i) {
    const float position = static_cast<float>((i + 0.5) * scale - 0.5);
    const int whole = static_cast<int>(std::floor(position));
    const bool outside = along_x && (whole < 0 || whole >= source - 1);
    all.push_back(At(whole, outside ? 0 : position - static_cast<float>(whole), source));
  }
  return all;
}

FixedPlaces InFixedPoint(const Places& places, float (*round)(float)) {
  FixedPlaces all;
  for (const auto& [first, second, first_weight, second_weight] : places) {
    all.push_back({first, second, static_cast<int>(round(first_weight * kWeightOne)),
                   static_cast<int>(round(second_weight * kWeightOne))});
  }
  return all;
}

// Resizes along x, and then along y: `across` gives a number between two of a row, whose pixels have `kEach` of
// them, and `down` one between two such numbers. `in` and `out` give rows by their number.
template <int kEach, typename Weight, typename In, typename Out, typename Across, typename Down>
void ResizeBetween(const std::vector<Between<Weight>>& along_x, const std::vector<Between<Weight>>& along_y,
                   const In& in, const Out& out, const Across& across, const Down& down) {
  std::vector<Weight> kept[2];  // even and odd rows: one output after the other needs most of them twice
  int numbers[2] = {-1, -1};
  const size_t length = along_x.size() * kEach;
  const auto resized = [&](int y) -> const Weight* {
    std::vector<Weight>& row = kept[y % 2];
    if (std::exchange(numbers[y % 2], y) == y) return row.data();
    row.resize(length);
    Weight* to = row.data();
    const auto* from = in(y);
    for (const Between<Weight>& x : along_x) {
      for (int c = 0; c < kEach; ++c) {
        *to++ = across(from[x.first * kEach + c], from[x.second * kEach + c], x);
      }
    }
    return row.data();
  };
  for (size_t y = 0; y < along_y.size(); ++y) {
    const Weight* upper = resized(along_y[y].first);
    const Weight* lower = resized(along_y[y].second);
    auto* to = out(static_cast<int>(y));
    for (size_t x = 0; x < length; ++x) *to++ = down(upper[x], lower[x], along_y[y]);
  }
}

template <typename Across, typename Down>
Image ResizedBetween(const Image& image, const FixedPlaces& along_x, const FixedPlaces& along_y, const Across& across,
                     const Down& down) {
  Image result(static_cast<int>(along_y.size()), static_cast<int>(along_x.size()));
  const auto in = [&](int y) { return image.Row(y); };
  const auto out = [&](int y) { return result.MutableRow(y); };
  ResizeBetween<kChannels>(along_x, along_y, in, out, across, down);
  return result;
}

// OpenCV takes INTER_AREA for both where sides are halved.
bool AreHalved(const Image& image, Size size) {
  return image.height() == 2 * size.height && image.width() == 2 * size.width;
}

// Means of whole blocks of pixels.
Image BlockMeans(const Image& image, Size size) {
  Image result(size.height, size.width);
  const int rows = image.height() / size.height;
  const int columns = image.width() / size.width;
  const int area = rows * columns;
  const float scale = 1.0f / static_cast<float>(area);
  for (int y = 0; y < size.height; ++y) {
    uint8_t* out = result.MutableRow(y);
    for (int x = 0; x < size.width * kChannels; ++x) {
      int64_t sum = 0;
      for (int row = 0; row < rows; ++row) {
        const uint8_t* in = image.Row(y * rows + row) + x / kChannels * columns * kChannels + x % kChannels;
        for (int column = 0; column < columns; ++column) sum += in[column * kChannels];
      }
      out[x] = rows == 2 && columns == 2 ? static_cast<uint8_t>((sum + 2) >> 2)
                                         : Level(std::nearbyint(static_cast<float>(sum) * scale));
    }
  }
  return result;
}

// An output along one axis: the weights of the source's pixels from `first` on.
struct Window {
  int first;
  std::vector<float> weights;
};

// OpenCV's INTER_AREA.
std::vector<Window> AreaWindows(int source, int target) {
  const double scale = 1.0 / (static_cast<double>(target) / source);
  std::vector<Window> windows;
  for (int i = 0; i < target; ++i) {
    const double begin = i * scale;
    const double end = begin + scale;
    const double width = std::min(scale, source - begin);
    const int last = std::min(static_cast<int>(std::floor(end)), source - 1);
    const int first = std::min(static_cast<int>(std::ceil(begin)), last);
    Window window{first, {}};
    if (first - begin > 1e-3) window = {first - 1, {static_cast<float>((first - begin) / width)}};
    window.weights.insert(window.weights.end(), static_cast<size_t>(last - first), static_cast<float>(1.0 / width));
    if (end - last > 1e-3) {
      window.weights.push_back(static_cast<float>(std::min(std::min(end - last, 1.0), width) / width));
    }
    windows.push_back(std::move(window));
  }
  return windows;
}

// Pillow's bilinear filter, for outputs from `begin` on.
std::vector<Window> FilterWindows(int source, int target, int begin, int count) {
  const double step = static_cast<double>(source) / target;
  const double reach = std::max(step, 1.0);
  std::vector<Window> windows;
  for (int i = begin; i < begin + count; ++i) {
    const double centre = (i + 0.5) * step;
    const int first = std::clamp(static_cast<int>(std::floor(centre - reach)), 0, source - 1);
    const int last = std::clamp(static_cast<int>(std::ceil(centre + reach)), first, source - 1);
    std::vector<double> weights;
    double sum = 0;
    for (int each = first; each <= last; ++each) {
      weights.push_back(std::max(1 - std::fabs(each + 0.5 - centre) / reach, 0.0));
      sum += weights.back();
    }
    Window window{first, {}};
    for (const double weight : weights) window.weights.push_back(static_cast<float>(weight / sum));
    windows.push_back(std::move(window));
  }
  return windows;
}

// Sums of pixels along x, and then along y; `rounded` to levels in between, as Pillow does it.
Image Summed(const Image& image, const std::vector<Window>& along_x, const std::vector<Window>& along_y, bool rounded) {
  Image result(static_cast<int>(along_y.size()), static_cast<int>(along_x.size()));
  std::vector<float> sums(along_x.size() * kChannels);
  for (int y = 0; y < result.height(); ++y) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (size_t i = 0; i < along_y[y].weights.size(); ++i) {
      const uint8_t* in = image.Row(along_y[y].first + static_cast<int>(i));
      float* sum = sums.data();
      for (const Window& window : along_x) {
        float parts[kChannels] = {};
        for (size_t j = 0; j < window.weights.size(); ++j) {
          const uint8_t* pixel = in + (window.first + j) * kChannels;
          for (int c = 0; c < kChannels; ++c) parts[c] += window.weights[j] * pixel[c];
        }
        for (const float part : parts) *sum++ += along_y[y].weights[i] * (rounded ? Level(std::nearbyint(part)) : part);
      }
    }
    std::transform(sums.begin(), sums.end(), result.MutableRow(y),
                   [](float sum) { return Level(std::nearbyint(sum)); });
  }
  return result;
}

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
    const double first = std::floor(bounded / kSpots);
    spots.push_back({static_cast<int>(first), static_cast<int>(bounded - first * kSpots)});
  }
  return spots;
}

}  // namespace

Image Stretched(const Image& image, Size size) {
  const auto across = [](int first, int second, const Between<int>& place) {
    return (first * place.first_weight >> kWeightBits) + (second * place.second_weight >> kWeightBits);
  };
  const auto down = [](int first, int second, const Between<int>& place) {
    return static_cast<uint8_t>((first * place.first_weight + second * place.second_weight) >> kWeightBits);
  };
  return ResizedBetween(image, InFixedPoint(TenginePlaces(image.width(), size.width), std::trunc),
                        InFixedPoint(TenginePlaces(image.height(), size.height), std::trunc), across, down);
}

Image Interpolated(const Image& image, Size size) {
  if (AreHalved(image, size)) return BlockMeans(image, size);
  const auto down = [](int first, int second, const Between<int>& place) {
    return static_cast<uint8_t>(
        ((place.first_weight * (first >> 4) >> 16) + (place.second_weight * (second >> 4) >> 16) + 2) >> 2);
  };
  return ResizedBetween(image, InFixedPoint(LinearPlaces(image.width(), size.width, true), std::nearbyint),
                        InFixedPoint(LinearPlaces(image.height(), size.height, false), std::nearbyint), Sum<int>, down);
}

Image Averaged(const Image& image, Size size) {
  if (image.height() % size.height == 0 && image.width() % size.width == 0) return BlockMeans(image, size);
  return Summed(image, AreaWindows(image.width(), size.width), AreaWindows(image.height(), size.height), false);
}

Image Filtered(const Image& image, Size whole, int left, int top, Size size) {
  return Summed(image, FilterWindows(image.width(), whole.width, left, size.width),
                FilterWindows(image.height(), whole.height, top, size.height), true);
}

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

std::vector<float> Nearest(const std::vector<float>& values, Size from, Size to) {
  const auto places = [](int source, int target) {
    const double scale = 1.0 / (static_cast<double>(target) / source);
    std::vector<int> all;
    for (int i = 0; i < target; ++i) all.push_back(std::min(static_cast<int>(std::floor(i * scale)), source - 1));
    return all;
  };
  const auto along_x = places(from.width, to.width);
  std::vector<float> result;
  result.reserve(static_cast<size_t>(to.height) * to.width);
  for (const int y : places(from.height, to.height)) {
    const float* in = values.data() + static_cast<size_t>(y) * from.width;
    for (const int x : along_x) result.push_back(in[x]);
  }
  return result;
}

std::vector<float> Interpolated(const std::vector<float>& values, Size from, Size to) {
  std::vector<float> result(static_cast<size_t>(to.height) * to.width);
  const auto in = [&](int y) { return values.data() + static_cast<size_t>(y) * from.width; };
  const auto out = [&](int y) { return result.data() + static_cast<size_t>(y) * to.width; };
  ResizeBetween<1>(LinearPlaces(from.width, to.width, true), LinearPlaces(from.height, to.height, false), in, out,
                   Sum<float>, Sum<float>);
  return result;
}

}  // namespace agent
