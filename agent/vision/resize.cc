#include "vision/resize.h"

#include <algorithm>
#include <cmath>

namespace agent {
namespace {

constexpr int kChannels = 3;
constexpr int kWeightBits = 11;
constexpr float kWeightOne = 1 << kWeightBits;

int Clipped(int value, int least, int most) { return std::min(std::max(value, least), most); }

uint8_t Level(double value) { return static_cast<uint8_t>(std::min(std::max(value, 0.0), 255.0)); }

// Where an output lies along one axis: two neighbours of the source, and how far it is from the first to the second.
struct Place {
  int first;
  int second;
  float fraction;
};

struct Weighted {
  int first;
  int second;
  int first_weight;
  int second_weight;
};

// Tengine's: clamped to the border, weights cut off.
std::vector<Weighted> TengineWeights(int source, int target) {
  const float scale = static_cast<float>(source) / static_cast<float>(target);
  std::vector<Weighted> all;
  for (int i = 0; i < target; ++i) {
    const float position =
        std::min(std::max((static_cast<float>(i) + 0.5f) * scale - 0.5f, 0.0f), static_cast<float>(source - 1));
    const float whole = std::floor(position);
    const float fraction = position - whole;
    const int first = static_cast<int>(whole);
    all.push_back({first, std::min(first + 1, source - 1), static_cast<int>((1 - fraction) * kWeightOne),
                   static_cast<int>(fraction * kWeightOne)});
  }
  return all;
}

// OpenCV's. Along x, what lies outside has the border's value alone; along y, both neighbours are the border.
std::vector<Place> LinearPlaces(int source, int target, bool along_x) {
  const double scale = 1.0 / (static_cast<double>(target) / source);
  std::vector<Place> all;
  for (int i = 0; i < target; ++i) {
    const float position = static_cast<float>((i + 0.5) * scale - 0.5);
    const int whole = static_cast<int>(std::floor(position));
    float fraction = position - static_cast<float>(whole);
    if (along_x && (whole < 0 || whole >= source - 1)) fraction = 0;
    all.push_back({Clipped(whole, 0, source - 1), Clipped(whole + 1, 0, source - 1), fraction});
  }
  return all;
}

std::vector<Weighted> LinearWeights(int source, int target, bool along_x) {
  std::vector<Weighted> all;
  for (const Place& place : LinearPlaces(source, target, along_x)) {
    all.push_back({place.first, place.second, static_cast<int>(std::nearbyint((1 - place.fraction) * kWeightOne)),
                   static_cast<int>(std::nearbyint(place.fraction * kWeightOne))});
  }
  return all;
}

// Rows of the source that were resized along x, the last two that were asked for: one after the other needs most of
// them twice.
template <typename Number, typename Compute>
class Rows {
 public:
  Rows(size_t length, const Compute& compute) : compute_(compute) {
    for (auto& row : rows_) row.resize(length);
  }
  // Until the one after the next is asked for.
  const Number* Row(int y) {
    for (int i = 0; i < 2; ++i) {
      if (numbers_[i] != y) continue;
      last_ = i;
      return rows_[i].data();
    }
    last_ = 1 - last_;
    numbers_[last_] = y;
    compute_(y, rows_[last_].data());
    return rows_[last_].data();
  }

 private:
  const Compute& compute_;
  std::vector<Number> rows_[2];
  int numbers_[2] = {-1, -1};
  int last_ = 0;
};

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

// A part of an output of INTER_AREA that a pixel of the source makes up.
struct Share {
  int source;
  int target;
  float weight;
};

std::vector<Share> AreaShares(int source, int target) {
  const double scale = 1.0 / (static_cast<double>(target) / source);
  std::vector<Share> shares;
  for (int i = 0; i < target; ++i) {
    const double begin = i * scale;
    const double end = begin + scale;
    const double width = std::min(scale, source - begin);
    int first = static_cast<int>(std::ceil(begin));
    const int last = std::min(static_cast<int>(std::floor(end)), source - 1);
    first = std::min(first, last);
    if (first - begin > 1e-3) shares.push_back({first - 1, i, static_cast<float>((first - begin) / width)});
    for (int each = first; each < last; ++each) shares.push_back({each, i, static_cast<float>(1.0 / width)});
    if (end - last > 1e-3) {
      shares.push_back({last, i, static_cast<float>(std::min(std::min(end - last, 1.0), width) / width)});
    }
  }
  return shares;
}

// Pillow's bilinear filter along one axis: for outputs from `begin` on, which pixels of the source they are made of.
struct Window {
  int first;
  std::vector<float> weights;
};

std::vector<Window> FilterWindows(int source, int target, int begin, int count) {
  const double step = static_cast<double>(source) / target;
  const double reach = std::max(step, 1.0);
  std::vector<Window> windows;
  for (int i = begin; i < begin + count; ++i) {
    const double centre = (i + 0.5) * step;
    const int first = Clipped(static_cast<int>(std::floor(centre - reach)), 0, source - 1);
    const int last = Clipped(static_cast<int>(std::ceil(centre + reach)), first, source - 1);
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

// Resized along x, and then along y: `across` gives a value between two pixels of a row, `down` a level between two
// such values.
template <typename Across, typename Down>
Image ResizedBetween(const Image& image, Size size, const std::vector<Weighted>& along_x,
                     const std::vector<Weighted>& along_y, const Across& across, const Down& down) {
  Image result(size.height, size.width);
  const auto compute = [&](int y, int* row) {
    const uint8_t* in = image.Row(y);
    for (const Weighted& x : along_x) {
      for (int c = 0; c < kChannels; ++c) {
        *row++ = across(in[x.first * kChannels + c], in[x.second * kChannels + c], x);
      }
    }
  };
  Rows<int, decltype(compute)> rows(size.width * size_t{kChannels}, compute);
  for (int y = 0; y < size.height; ++y) {
    const int* upper = rows.Row(along_y[y].first);
    const int* lower = rows.Row(along_y[y].second);
    uint8_t* out = result.MutableRow(y);
    for (int x = 0; x < size.width * kChannels; ++x) {
      out[x] = static_cast<uint8_t>(down(upper[x], lower[x], along_y[y]));
    }
  }
  return result;
}

Image Stretched(const Image& image, Size size) {
  const auto across = [](int first, int second, const Weighted& place) {
    return (first * place.first_weight >> kWeightBits) + (second * place.second_weight >> kWeightBits);
  };
  const auto down = [](int first, int second, const Weighted& place) {
    return (first * place.first_weight + second * place.second_weight) >> kWeightBits;
  };
  return ResizedBetween(image, size, TengineWeights(image.width(), size.width),
                        TengineWeights(image.height(), size.height), across, down);
}

Image Interpolated(const Image& image, Size size) {
  if (AreHalved(image, size)) return BlockMeans(image, size);
  const auto across = [](int first, int second, const Weighted& place) {
    return first * place.first_weight + second * place.second_weight;
  };
  const auto down = [](int first, int second, const Weighted& place) {
    return ((place.first_weight * (first >> 4) >> 16) + (place.second_weight * (second >> 4) >> 16) + 2) >> 2;
  };
  return ResizedBetween(image, size, LinearWeights(image.width(), size.width, true),
                        LinearWeights(image.height(), size.height, false), across, down);
}

Image Averaged(const Image& image, Size size) {
  if (image.height() % size.height == 0 && image.width() % size.width == 0) return BlockMeans(image, size);
  Image result(size.height, size.width);
  const auto along_x = AreaShares(image.width(), size.width);
  const auto along_y = AreaShares(image.height(), size.height);
  const size_t length = size.width * size_t{kChannels};
  std::vector<float> row(length);
  std::vector<float> sum(length);
  for (size_t i = 0; i < along_y.size(); ++i) {
    const Share& y = along_y[i];
    std::fill(row.begin(), row.end(), 0.0f);
    const uint8_t* in = image.Row(y.source);
    for (const Share& x : along_x) {
      for (int c = 0; c < kChannels; ++c) row[x.target * kChannels + c] += in[x.source * kChannels + c] * x.weight;
    }
    const bool begins = i == 0 || along_y[i - 1].target != y.target;
    for (size_t x = 0; x < length; ++x) sum[x] = begins ? y.weight * row[x] : sum[x] + y.weight * row[x];
    if (i + 1 < along_y.size() && along_y[i + 1].target == y.target) continue;
    uint8_t* out = result.MutableRow(y.target);
    for (size_t x = 0; x < length; ++x) out[x] = Level(std::nearbyint(sum[x]));
  }
  return result;
}

Image Filtered(const Image& image, Size whole, int left, int top, Size size) {
  const auto along_x = FilterWindows(image.width(), whole.width, left, size.width);
  const auto along_y = FilterWindows(image.height(), whole.height, top, size.height);
  const size_t length = size.width * size_t{kChannels};
  Image result(size.height, size.width);
  std::vector<float> sum(length);
  std::vector<float> levels(length);
  for (int y = 0; y < size.height; ++y) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (size_t i = 0; i < along_y[y].weights.size(); ++i) {
      const uint8_t* in = image.Row(along_y[y].first + static_cast<int>(i));
      for (int x = 0; x < size.width; ++x) {
        const Window& window = along_x[x];
        float parts[kChannels] = {};
        for (size_t j = 0; j < window.weights.size(); ++j) {
          const uint8_t* pixel = in + (window.first + j) * kChannels;
          for (int c = 0; c < kChannels; ++c) parts[c] += window.weights[j] * pixel[c];
        }
        // Levels are rounded between the two, as Pillow does it.
        for (int c = 0; c < kChannels; ++c) levels[x * kChannels + c] = Level(std::nearbyint(parts[c]));
      }
      const float weight = along_y[y].weights[i];
      for (size_t x = 0; x < length; ++x) sum[x] += weight * levels[x];
    }
    uint8_t* out = result.MutableRow(y);
    for (size_t x = 0; x < length; ++x) out[x] = Level(std::nearbyint(sum[x]));
  }
  return result;
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
  const auto along_x = LinearPlaces(from.width, to.width, true);
  const auto along_y = LinearPlaces(from.height, to.height, false);
  const auto compute = [&](int y, float* row) {
    const float* in = values.data() + static_cast<size_t>(y) * from.width;
    for (const Place& x : along_x) *row++ = in[x.first] * (1 - x.fraction) + in[x.second] * x.fraction;
  };
  Rows<float, decltype(compute)> rows(to.width, compute);
  std::vector<float> result(static_cast<size_t>(to.height) * to.width);
  float* out = result.data();
  for (const Place& y : along_y) {
    const float* upper = rows.Row(y.first);
    const float* lower = rows.Row(y.second);
    for (int x = 0; x < to.width; ++x) *out++ = upper[x] * (1 - y.fraction) + lower[x] * y.fraction;
  }
  return result;
}

}  // namespace agent
