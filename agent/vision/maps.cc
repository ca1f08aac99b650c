// Maps over an image: the class that each pixel shows, and depth (edgedeploy/vision/decoders/maps.py).
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "vision/decoder.h"
#include "vision/masks.h"

namespace agent {
namespace {

constexpr int64_t kNone = -1;

class Segmentation : public Decoder {
 public:
  explicit Segmentation(Fields& fields) {
    fields.Read("output", &output_);
    fields.Read("layout", &channels_last_, OneOf{"NCHW", "NHWC"});
    fields.Read("background", &background_, Limits{0});
    fields.Read("threshold", &threshold_);
  }

  std::vector<Detection> Decode(const Outputs& outputs, const Frame& frame, const Labels& labels) const override {
    const std::vector<int64_t> classes = ClassMap(outputs, frame);
    std::map<int64_t, int64_t> areas;
    for (const int64_t each : classes) {
      if (each >= 0) ++areas[each];
    }
    std::vector<std::pair<int64_t, int64_t>> ordered(areas.begin(), areas.end());
    std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    const Box all{0, 0, static_cast<float>(frame.image.width), static_cast<float>(frame.image.height)};
    std::vector<Detection> results;
    std::vector<float> belongs(classes.size());
    for (const auto& [number, area] : ordered) {
      if (number == background_) continue;
      std::transform(classes.begin(), classes.end(), belongs.begin(),
                     [number = number](int64_t each) { return each == number ? 1.0f : 0.0f; });
      Detection result;
      result.class_id = number;
      result.label = LabelOf(labels, number);
      result.mask = MaskIn(all, belongs, frame.image);
      results.push_back(std::move(result));
    }
    return results;
  }

 private:
  // The class of each pixel of the image, row by row.
  std::vector<int64_t> ClassMap(const Outputs& outputs, const Frame& frame) const {
    const Outputs::Output& output = outputs.FirstOr(output_);
    const std::vector<int64_t>& shape = output.shape;
    const auto count = static_cast<int64_t>(output.values.size());
    if (output.whole && shape.size() > 2 && count == shape[shape.size() - 2] * shape.back()) {
      const Size size{static_cast<int>(shape[shape.size() - 2]), static_cast<int>(shape.back())};
      const std::vector<float> numbers = OnImage(output.values, size, frame, true);
      return {numbers.begin(), numbers.end()};
    }
    if (shape.size() != 4 || shape[0] != 1 || count == 0) throw output.IsNot("1xCxHxW");
    const int64_t channels = shape[channels_last_ ? 3 : 1];
    const int64_t rows = shape[channels_last_ ? 1 : 2];
    const int64_t columns = shape[channels_last_ ? 2 : 3];
    const int64_t area = rows * columns;
    const size_t pixels = static_cast<size_t>(frame.image.height) * frame.image.width;
    std::vector<float> best(pixels, channels > 1 ? -std::numeric_limits<float>::infinity() : threshold_);
    std::vector<int64_t> classes(pixels, kNone);
    std::vector<float> scores(static_cast<size_t>(area));
    for (int64_t number = 0; number < channels; ++number) {
      for (int64_t i = 0; i < area; ++i) {
        scores[i] = output.values[channels_last_ ? i * channels + number : number * area + i];
      }
      const std::vector<float> here = OnImage(scores, {static_cast<int>(rows), static_cast<int>(columns)}, frame);
      for (size_t i = 0; i < pixels; ++i) {
        if (!(here[i] > best[i])) continue;
        best[i] = here[i];
        classes[i] = number;
      }
    }
    return classes;
  }

  std::optional<std::string> output_;
  bool channels_last_ = false;
  std::optional<int64_t> background_;
  float threshold_ = 0;
};

// The middle one, or the mean of the two in the middle.
float MedianOf(std::vector<float> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  const float before = *std::max_element(values.begin(), middle);
  return before + (*middle - before) / 2;
}

class Depth : public Decoder {
 public:
  explicit Depth(Fields& fields) { fields.Read("output", &output_); }

  std::vector<Detection> Decode(const Outputs& outputs, const Frame& frame, const Labels& labels) const override {
    const Outputs::Output& output = outputs.FirstOr(output_);
    const size_t rank = output.shape.size();
    if ((rank != 3 && rank != 4) ||
        static_cast<int64_t>(output.values.size()) != output.shape[rank - 2] * output.shape[rank - 1]) {
      throw output.IsNot("1x1xHxW or 1xHxW");
    }
    const Size size{static_cast<int>(output.shape[rank - 2]), static_cast<int>(output.shape[rank - 1])};
    Surface surface{OnImage(output.values, size, frame), 0, 0, 0};
    std::vector<float> finite;
    for (const float each : surface.values) {
      if (std::isfinite(each)) finite.push_back(each);
    }
    if (finite.empty()) return {};
    const auto [least, most] = std::minmax_element(finite.begin(), finite.end());
    surface.minimum = *least;
    surface.maximum = *most;
    surface.median = MedianOf(std::move(finite));
    Detection result;
    result.label = LabelOf(labels.empty() ? Labels{"depth"} : labels, 0);
    result.surface = std::move(surface);
    std::vector<Detection> results;
    results.push_back(std::move(result));
    return results;
  }

 private:
  std::optional<std::string> output_;
};

}  // namespace

Kinds MapDecoders() { return {{"depth", Made<Depth>}, {"segmentation", Made<Segmentation>}}; }

}  // namespace agent
