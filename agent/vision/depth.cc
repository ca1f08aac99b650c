// A number for each pixel of an image (edgedeploy/vision/decoders/maps.py).
#include <algorithm>
#include <cmath>

#include "vision/decoder.h"
#include "vision/masks.h"

namespace agent {
namespace {

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
  explicit Depth(std::string output) : output_(std::move(output)) {}

  std::vector<Detection> Decode(const Outputs& outputs, const Frame& frame, const Labels& labels) const override {
    const Outputs::Output& output = outputs.FirstOr(output_);
    const size_t rank = output.shape.size();
    if ((rank != 3 && rank != 4) ||
        static_cast<int64_t>(output.values.size()) != output.shape[rank - 2] * output.shape[rank - 1]) {
      throw NotOfThisKind("its output '" + output.name + "' is " + Shown(output.shape) + ", not 1x1xHxW or 1xHxW");
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
  std::string output_;
};

}  // namespace

Fitted MakeDepth(Parameters& parameters, const Described&) {
  std::string output = parameters.Text("output", "");
  parameters.Finish();
  return {std::make_unique<Depth>(std::move(output)), {}, {}};
}

}  // namespace agent
