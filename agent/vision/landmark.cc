// Landmarks of one face that fills the image (edgedeploy/vision/decoders/keypoints.py).
#include "vision/decoder.h"

namespace agent {
namespace {

class Landmark : public Decoder {
 public:
  explicit Landmark(size_t points) : points_(points) {}

  std::vector<Detection> Decode(const Outputs& outputs, const Frame& frame, const Labels& labels) const override {
    std::string shapes;
    for (const Outputs::Output& output : outputs.all()) {
      shapes += (shapes.empty() ? "" : ", ") + output.name + " " + Shown(output.shape);
      if (output.values.size() != 2 * points_) continue;
      Detection result;
      result.label = LabelOf(labels.empty() ? Labels{"face"} : labels, 0);
      const auto width = static_cast<float>(frame.network.width);
      const auto height = static_cast<float>(frame.network.height);
      for (size_t i = 0; i < points_; ++i) {
        result.points.push_back(frame.ToImage(Point{output.values[2 * i] * width, output.values[2 * i + 1] * height}));
      }
      return {result};
    }
    throw NotOfThisKind("none of its outputs holds " + std::to_string(2 * points_) + " values: " + shapes);
  }

 private:
  size_t points_;
};

}  // namespace

Fitted MakeLandmark(Parameters& parameters, const Described&) {
  const int64_t points = CountOf(parameters.At("points"), 1 << 20);
  parameters.Finish();
  return {std::make_unique<Landmark>(static_cast<size_t>(points)), {}, {}};
}

}  // namespace agent
