// RetinaFace with anchors: faces with five landmarks (edgedeploy/vision/decoders/faces.py).
#include "vision/decoder.h"

namespace agent {
namespace {

constexpr int64_t kPoints = 5;  // eyes, nose, corners of the mouth
constexpr float kHalfBase = 8;  // of InsightFace's base size, around which anchors are made

struct Level {
  int64_t stride;
  std::vector<float> anchors;
};

class RetinaFace : public BoxDecoder {
 public:
  explicit RetinaFace(Parameters& parameters) : BoxDecoder(parameters, {0.8, 0.4}) {
    SetNames({"face"});
    if (const Json* levels = parameters.Find("levels")) {
      levels_.clear();
      for (const Json& each : levels->array()) levels_.push_back(ReadLevel(each));
      if (levels_.empty()) throw JsonError("levels is empty");
    }
    parameters.Finish();
  }

 protected:
  Candidates Find(const Outputs& outputs, const Frame&) const override {
    Candidates found;
    found.points_each = kPoints;
    for (const Level& level : levels_) AddLevel(outputs, level, &found);
    return found;
  }

 private:
  static Level ReadLevel(const Json& json) {
    Parameters parameters(json);
    Level level{CountOf(parameters.At("stride"), kMaximumStride), {}};
    for (const Json& each : parameters.At("anchors").array()) level.anchors.push_back(static_cast<float>(SideOf(each)));
    if (level.anchors.empty()) throw JsonError("anchors is empty");
    return level;
  }

  void AddLevel(const Outputs& outputs, const Level& level, Candidates* found) const {
    const auto count = static_cast<int64_t>(level.anchors.size());
    const auto planes = [&](const char* what, int64_t values) {
      return outputs.PlanesOf("face_rpn_" + std::string(what) + "_stride" + std::to_string(level.stride),
                              count * values);
    };
    const Planes scores = planes("cls_prob_reshape", 2);
    const Planes shifts = planes("bbox_pred", 4);
    const Planes landmarks = planes("landmark_pred", 2 * kPoints);
    const int64_t area = shifts.area();
    if (scores.area() != area || landmarks.area() != area) {
      throw NotOfThisKind("its outputs speak of different numbers of places");
    }
    for (int64_t anchor = 0; anchor < count; ++anchor) {
      const float side = level.anchors[static_cast<size_t>(anchor)];
      for (int64_t cell = 0; cell < area; ++cell) {
        const float score = scores.values[(count + anchor) * area + cell];  // background of all anchors comes before
        if (!Reaches(score)) continue;
        const auto stride = static_cast<float>(level.stride);
        const float x = kHalfBase + stride * static_cast<float>(cell % shifts.columns);
        const float y = kHalfBase + stride * static_cast<float>(cell / shifts.columns);
        const auto shift = [&](int64_t i) { return shifts.values[(4 * anchor + i) * area + cell]; };
        Box box = Around(x + side * shift(0), y + side * shift(1), side * Exponential(shift(2)),
                         side * Exponential(shift(3)));
        box.x2 += 1;
        box.y2 += 1;
        found->Add(score, box);
        for (int64_t i = 0; i < kPoints; ++i) {
          const float* point = landmarks.values + (2 * (kPoints * anchor + i)) * area + cell;
          found->points.push_back({x + (side + 1) * point[0], y + (side + 1) * point[area]});
        }
      }
    }
  }

  // InsightFace's mnet.25: base size 16, ratio 1, scales (32, 16), (8, 4), (2, 1).
  std::vector<Level> levels_{{32, {512, 256}}, {16, {128, 64}}, {8, {32, 16}}};
};

}  // namespace

Fitted MakeRetinaFace(Parameters& parameters, const Described&) {
  return {std::make_unique<RetinaFace>(parameters), {}, {}};
}

}  // namespace agent
