// For each pixel of an image the class that it shows (edgedeploy/vision/decoders/maps.py).
#include <algorithm>
#include <limits>
#include <map>

#include "vision/decoder.h"
#include "vision/masks.h"

namespace agent {
namespace {

constexpr int64_t kNone = -1;

class Segmentation : public Decoder {
 public:
  explicit Segmentation(Parameters& parameters)
      : output_(parameters.Text("output", "")),
        channels_last_(parameters.Choice("layout", {"NCHW", "NHWC"}, 0) == 1) {
    if (const Json* background = parameters.Find("background")) {
      background_ = background->integer();
      if (background_ < 0) throw JsonError("background is below zero");
    }
    if (const Json* threshold = parameters.Find("threshold")) threshold_ = static_cast<float>(threshold->number());
    parameters.Finish();
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
    if (shape.size() != 4 || shape[0] != 1 || count == 0) {
      throw NotOfThisKind("its output '" + output.name + "' is " + Shown(shape) + ", not 1xCxHxW");
    }
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

  std::string output_;
  bool channels_last_;
  int64_t background_ = kNone;
  float threshold_ = 0;
};

}  // namespace

Fitted MakeSegmentation(Parameters& parameters, const Described&) {
  return {std::make_unique<Segmentation>(parameters), {}, {}};
}

}  // namespace agent
