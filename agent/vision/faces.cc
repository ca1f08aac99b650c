// Faces with five landmarks: RetinaFace with anchors, and YuNet (edgedeploy/vision/decoders/faces.py).
#include <cmath>

#include "vision/decoder.h"

namespace agent {
namespace {

constexpr int64_t kPoints = 5;  // eyes, nose, corners of the mouth
constexpr float kHalfBase = 8;  // of InsightFace's base size, around which anchors are made

struct Level {
  int64_t stride;
  std::vector<float> anchors;
};

void ReadFields(Fields& fields, Level* level) {
  fields.Require("stride", &level->stride, kStride);
  fields.Require("anchors", &level->anchors, OneOrMore(kPositive));
}

class RetinaFace : public BoxDecoder {
 public:
  explicit RetinaFace(Fields& fields) : BoxDecoder(fields, {0.8f, 0.4}) {
    SetNames({"face"});
    fields.Read("levels", &levels_, OneOrMore());
  }

 protected:
  Candidates Find(const Outputs& outputs, const Frame&) const override {
    Candidates found;
    for (const Level& level : levels_) AddLevel(outputs, level, &found);
    return found;
  }

 private:
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
        found->push_back({score, box});
        for (int64_t i = 0; i < kPoints; ++i) {
          const float* point = landmarks.values + (2 * (kPoints * anchor + i)) * area + cell;
          found->back().points.push_back({x + (side + 1) * point[0], y + (side + 1) * point[area]});
        }
      }
    }
  }

  // InsightFace's mnet.25: base size 16, ratio 1, scales (32, 16), (8, 4), (2, 1).
  std::vector<Level> levels_{{32, {512, 256}}, {16, {128, 64}}, {8, {32, 16}}};
};

class YuNet : public BoxDecoder {
 public:
  explicit YuNet(Fields& fields) : BoxDecoder(fields, {0.9f, 0.3}) {
    SetNames({"face"});
    fields.Read("strides", &strides_, Levels(kStride));
  }

 protected:
  Candidates Find(const Outputs& outputs, const Frame& frame) const override {
    Candidates found;
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
        const float score = std::sqrt(Clipped(*classes.Row(place), 1) * Clipped(*objectness.Row(place), 1));
        if (!Reaches(score)) return;
        const float* box = boxes.Row(place);
        found.push_back({score, Around((x + box[0]) * step, (y + box[1]) * step, Exponential(box[2]) * step,
                                       Exponential(box[3]) * step)});
        for (int64_t i = 0; i < kPoints; ++i) {
          const float* point = points.Row(place) + 2 * i;
          found.back().points.push_back({(x + point[0]) * step, (y + point[1]) * step});
        }
      });
    }
    return found;
  }

 private:
  std::vector<int64_t> strides_{8, 16, 32};
};

}  // namespace

Kinds FaceDecoders() { return {{"retinaface", Made<RetinaFace>}, {"yunet", Made<YuNet>}}; }

}  // namespace agent
