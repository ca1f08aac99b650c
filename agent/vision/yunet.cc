// YuNet: faces with five landmarks (edgedeploy/vision/decoders/faces.py).
#include <algorithm>
#include <cmath>

#include "vision/decoder.h"

namespace agent {
namespace {

constexpr int64_t kPoints = 5;  // eyes, nose, corners of the mouth

float Limited(float value) { return std::min(std::max(value, 0.0f), 1.0f); }

class YuNet : public BoxDecoder {
 public:
  explicit YuNet(Parameters& parameters) : BoxDecoder(parameters, {0.9, 0.3}) {
    SetNames({"face"});
    strides_ = parameters.Counts("strides", {8, 16, 32}, kMaximumStride);
    parameters.Finish();
  }

 protected:
  Candidates Find(const Outputs& outputs, const Frame& frame) const override {
    Candidates found;
    found.points_each = kPoints;
    for (const int64_t stride : strides_) {
      const int64_t count = CellCount(frame.network, {stride});
      const auto table = [&](const char* what, int64_t values) {
        return outputs.TableOf(what + ("_" + std::to_string(stride)), count, values);
      };
      const Table classes = table("cls", 1);
      const Table objectness = table("obj", 1);
      const Table boxes = table("bbox", 4);
      const Table points = table("kps", 2 * kPoints);
      const auto step = static_cast<float>(stride);
      EachCell(frame.network, {stride}, [&](int64_t place, float x, float y, size_t) {
        const float score = std::sqrt(Limited(*classes.Row(place)) * Limited(*objectness.Row(place)));
        if (!Reaches(score)) return;
        const float* box = boxes.Row(place);
        found.Add(score, Around((x + box[0]) * step, (y + box[1]) * step, Exponential(box[2]) * step,
                                Exponential(box[3]) * step));
        for (int64_t i = 0; i < kPoints; ++i) {
          const float* point = points.Row(place) + 2 * i;
          found.points.push_back({(x + point[0]) * step, (y + point[1]) * step});
        }
      });
    }
    return found;
  }

 private:
  std::vector<int64_t> strides_;
};

}  // namespace

Fitted MakeYuNet(Parameters& parameters, const Described&) { return {std::make_unique<YuNet>(parameters), {}, {}}; }

}  // namespace agent
