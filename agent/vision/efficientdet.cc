// EfficientDet: objects from anchors of nine shapes (edgedeploy/vision/decoders/ssd.py).
#include <cmath>

#include "vision/decoder.h"

namespace agent {
namespace {

constexpr int64_t kHighestLevel = 12;
constexpr int64_t kMostOctaves = 16;

class EfficientDet : public BoxDecoder {
 public:
  explicit EfficientDet(Parameters& parameters) : BoxDecoder(parameters, {0.2, 0.2}) {
    ReadSuppression(parameters);
    scores_ = parameters.Texts("scores");
    boxes_ = parameters.Texts("boxes");
    planes_ = parameters.Choice("layout", {"NHWC", "NCHW"}, 0) == 1;
    logits_ = parameters.Truth("logits", true);
    for (const int64_t level : parameters.Counts("levels", {3, 4, 5, 6, 7}, kHighestLevel)) {
      strides_.push_back(int64_t{1} << level);
    }
    const int64_t octaves = parameters.Count("octaves", 3, kMostOctaves);
    std::vector<std::pair<double, double>> ratios{{1.0, 1.0}, {1.4, 0.7}, {0.7, 1.4}};
    if (const Json* stated = parameters.Find("ratios")) {
      ratios.clear();
      for (const Json& each : stated->array()) ratios.push_back(SidesOf(each));
    }
    anchor_scale_ = parameters.Side("anchor_scale", 4.0);
    parameters.Finish();
    for (int64_t k = 0; k < octaves; ++k) {
      const double growth = std::pow(2.0, static_cast<double>(k) / static_cast<double>(octaves));
      for (const auto& [width, height] : ratios) shapes_.emplace_back(growth * width, growth * height);
    }
    if (scores_.empty() || boxes_.empty() || shapes_.empty()) throw JsonError("scores, boxes or ratios are empty");
    if (ratios.size() > kMaximumLevels) throw JsonError("there are more ratios than networks have");
  }

 protected:
  Candidates Find(const Outputs& outputs, const Frame& frame) const override {
    std::vector<float> joined_scores;
    std::vector<float> joined_boxes;
    const Table scores = Joined(outputs, scores_, &joined_scores);
    const Table boxes = Joined(outputs, boxes_, &joined_boxes);
    const auto each = static_cast<int64_t>(shapes_.size());
    const int64_t anchors = CellCount(frame.network, strides_) * each;
    if (scores.rows != anchors || boxes.rows != anchors || boxes.columns != 4 || scores.columns < 1) {
      throw NotOfThisKind("its class scores are " + std::to_string(scores.rows) + " rows, and its boxes " +
                          std::to_string(boxes.rows) + " rows of " + std::to_string(boxes.columns) + " values, for " +
                          std::to_string(anchors) + " anchors");
    }
    Candidates found;
    EachCell(frame.network, strides_, [&](int64_t cell, float column, float row, size_t level) {
      const auto stride = static_cast<float>(strides_[level]);
      for (int64_t i = 0; i < each; ++i) {
        const int64_t place = cell * each + i;
        const Best best = BestOf(scores.Row(place), scores.columns);
        const float score = logits_ ? Sigmoid(best.value) : best.value;
        if (!Reaches(score)) continue;
        const double size = anchor_scale_ * static_cast<double>(strides_[level]);
        const auto width = static_cast<float>(size * shapes_[static_cast<size_t>(i)].first);
        const auto height = static_cast<float>(size * shapes_[static_cast<size_t>(i)].second);
        const float* box = boxes.Row(place);  // y comes before x, height before width
        found.Add(score,
                  Around((column + 0.5f) * stride + box[1] * width, (row + 0.5f) * stride + box[0] * height,
                         width * Exponential(box[3]), height * Exponential(box[2])),
                  best.index);
      }
    });
    return found;
  }

 private:
  // Outputs as one row of values for each anchor; those of levels are joined in `memory`.
  Table Joined(const Outputs& outputs, const std::vector<std::string>& names, std::vector<float>* memory) const {
    if (names.size() == 1 && strides_.size() > 1) return outputs.TableOf(names.front());
    const auto shapes = static_cast<int64_t>(shapes_.size());
    int64_t columns = 0;
    for (const std::string& name : names) {
      const Planes level = outputs.PlanesOf(name);  // whichever of the axes are channels
      const int64_t channels = planes_ ? level.channels : level.columns;
      const int64_t pixels = planes_ ? level.area() : level.channels * level.rows;
      if (channels == 0 || channels % shapes != 0) {
        throw NotOfThisKind("its output '" + name + "' has " + std::to_string(channels) + " channels, for " +
                            std::to_string(shapes) + " anchors");
      }
      if (columns != 0 && columns != channels / shapes) {
        throw NotOfThisKind("its outputs have different numbers of values for each anchor");
      }
      columns = channels / shapes;
      for (int64_t pixel = 0; pixel < pixels; ++pixel) {
        for (int64_t c = 0; c < channels; ++c) {
          memory->push_back(level.values[planes_ ? c * pixels + pixel : pixel * channels + c]);
        }
      }
    }
    return {memory->data(), static_cast<int64_t>(memory->size()) / columns, columns};
  }

  std::vector<std::string> scores_;
  std::vector<std::string> boxes_;
  bool planes_;
  bool logits_;
  std::vector<int64_t> strides_;
  double anchor_scale_;
  std::vector<std::pair<double, double>> shapes_;  // width and height in units of the level's anchors
};

}  // namespace

Fitted MakeEfficientDet(Parameters& parameters, const Described&) {
  return {std::make_unique<EfficientDet>(parameters), {}, {}};
}

}  // namespace agent
