// Faces, palms and people with key points, of BlazeFace and what followed it (edgedeploy/vision/decoders/keypoints.py).
#include <algorithm>

#include "vision/decoder.h"

namespace agent {
namespace {

constexpr int64_t kMaximumAnchors = 64;
constexpr int64_t kMaximumPoints = 1024;

struct AnchorLevel {
  int64_t stride;
  int64_t anchors;
};

class Blaze : public BoxDecoder {
 public:
  explicit Blaze(Parameters& parameters) : BoxDecoder(parameters, {0.5, 0.3, false}) {
    scores_ = parameters.At("scores").text();
    boxes_ = parameters.At("boxes").text();
    points_ = parameters.At("points").integer();
    if (points_ < 0 || points_ > kMaximumPoints) throw JsonError("points is not from 0 to 1024");
    for (const Json& each : parameters.At("levels").array()) {
      Parameters level(each);
      const int64_t stride = CountOf(level.At("stride"), kMaximumStride);
      levels_.push_back({stride, level.Count("anchors", 1, kMaximumAnchors)});
    }
    if (levels_.empty() || levels_.size() > kMaximumLevels) throw JsonError("levels are none, or too many");
    SetNames({parameters.Text("name", "face")});
    parameters.Finish();
  }

 protected:
  Candidates Find(const Outputs& outputs, const Frame& frame) const override {
    int64_t count = 0;
    for (const AnchorLevel& level : levels_) count += CellCount(frame.network, {level.stride}) * level.anchors;
    const Table values = outputs.TableOf(boxes_, count, 4 + 2 * points_);
    const Table scores = outputs.TableOf(scores_, count, 1);
    Candidates found;
    found.points_each = static_cast<size_t>(points_);
    int64_t row = 0;
    const auto add = [&](float x, float y) {
      const float score = Sigmoid(*scores.Row(row));
      const float* value = values.Row(row++);
      if (!Reaches(score) || !(value[2] >= 0 && value[3] >= 0)) return;
      found.Add(score, Around(x + value[0], y + value[1], value[2], value[3]));
      for (int64_t i = 0; i < points_; ++i) {
        found.points.push_back({x + value[4 + 2 * i], y + value[5 + 2 * i]});
      }
    };
    for (const AnchorLevel& level : levels_) {
      const Size grid = GridSize(frame.network, level.stride);
      const auto step_x = static_cast<float>(static_cast<double>(frame.network.width) / grid.width);
      const auto step_y = static_cast<float>(static_cast<double>(frame.network.height) / grid.height);
      EachCell(frame.network, {level.stride}, [&](int64_t, float x, float y, size_t) {
        for (int64_t i = 0; i < level.anchors; ++i) add((x + 0.5f) * step_x, (y + 0.5f) * step_y);
      });
    }
    return found;
  }

  // One for each group of those that overlap: means of its boxes and points, weighted with the scores.
  Candidates Reduced(const Candidates& found) const override {
    Candidates means;
    means.points_each = found.points_each;
    for (const std::vector<size_t>& group : Clusters(found, suppression())) {
      float sum = 0;
      for (const size_t place : group) sum += found.scores[place];
      Box box{};
      std::vector<Point> points(found.points_each);
      for (const size_t place : group) {
        const float weight = found.scores[place] / sum;
        const Box& each = found.boxes[place];
        box = {box.x1 + weight * each.x1, box.y1 + weight * each.y1, box.x2 + weight * each.x2,
               box.y2 + weight * each.y2};
        for (size_t i = 0; i < points.size(); ++i) {
          points[i].x += weight * found.PointsOf(place)[i].x;
          points[i].y += weight * found.PointsOf(place)[i].y;
        }
      }
      means.Add(found.scores[group.front()], box);
      means.points.insert(means.points.end(), points.begin(), points.end());
    }
    return means;
  }

 private:
  std::string scores_;
  std::string boxes_;
  int64_t points_;
  std::vector<AnchorLevel> levels_;
};

}  // namespace

Fitted MakeBlaze(Parameters& parameters, const Described&) { return {std::make_unique<Blaze>(parameters), {}, {}}; }

}  // namespace agent
