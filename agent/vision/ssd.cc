// Boxes relative to anchors of many sizes: SSD and its relatives, and EfficientDet (edgedeploy/vision/decoders/ssd.py).
#include <cmath>

#include "vision/decoder.h"

namespace agent {
namespace {

struct PriorLevel {
  int64_t stride;
  std::vector<std::pair<double, double>> sizes;
};

void ReadFields(Fields& fields, PriorLevel* level) {
  fields.Require("stride", &level->stride, kStride);
  fields.Require("sizes", &level->sizes, OneOrMore(kPositive));
}

enum class Background { kFirst, kLast, kNone };

class Ssd : public BoxDecoder {
 public:
  explicit Ssd(Fields& fields) : BoxDecoder(fields, {0.5f, 0.4}) {
    std::optional<std::vector<PriorLevel>> levels;
    std::optional<size_t> format;
    ReadSuppression(fields);
    fields.Require("scores", &scores_);
    fields.Require("boxes", &boxes_);
    fields.Read("points", &points_);
    fields.Read("levels", &levels, OneOrMore());
    fields.Read("variances", &variances_, kPositive);
    fields.Read("spacing", &spread_, OneOf{"stride", "even"});
    fields.Read("box_format", &format, OneOf{"xyxy", "yxyx", "cxcywh", "cycxhw"});
    fields.Read("background", &background_, OneOf{"first", "last", "none"});
    if (levels) levels_ = std::move(*levels);
    const size_t place = format.value_or(levels_.empty() ? 0 : 2);
    if (!levels_.empty() && place < 2) throw JsonError("with levels box_format is cxcywh or cycxhw");
    x_ = place % 2;
    centred_ = place >= 2;
  }

 protected:
  Candidates Find(const Outputs& outputs, const Frame& frame) const override {
    const Table boxes = outputs.TableOf(boxes_, levels_.empty() ? -1 : PriorCount(frame.network), 4);
    const Table scores = outputs.TableOf(scores_, boxes.rows);
    const int64_t classes = scores.columns - (background_ == Background::kNone ? 0 : 1);
    if (classes < 1) throw NotOfThisKind("its output '" + scores_ + "' has no class beside the background");
    Table points{nullptr, boxes.rows, 0};
    if (points_) points = outputs.TableOf(*points_, boxes.rows);
    if (points.columns % 2 != 0) {
      throw NotOfThisKind("its output '" + *points_ + "' has " + std::to_string(points.columns) +
                          " values for each place");
    }
    Candidates found;
    const auto width = static_cast<float>(frame.network.width);
    const auto height = static_cast<float>(frame.network.height);
    const auto along = static_cast<float>(variances_.first);
    const auto across = static_cast<float>(variances_.second);
    const auto add = [&](int64_t row, const Box* prior) {
      const Best best = BestOf(scores.Row(row) + (background_ == Background::kFirst ? 1 : 0), classes);
      if (!Reaches(best.value)) return;
      const float* values = boxes.Row(row);
      const float x = values[x_], y = values[1 - x_], right = values[2 + x_], low = values[3 - x_];
      if (prior) {
        found.push_back({best.value,
                         Around(prior->x1 + along * x * prior->x2, prior->y1 + along * y * prior->y2,
                                prior->x2 * Exponential(across * right), prior->y2 * Exponential(across * low)),
                         best.index});
      } else if (centred_) {
        found.push_back({best.value, Around(x * width, y * height, right * width, low * height), best.index});
      } else {
        found.push_back({best.value, {x * width, y * height, right * width, low * height}, best.index});
      }
      for (int64_t i = 0; i < points.columns; i += 2) {
        const float* point = points.Row(row) + i;
        found.back().points.push_back(
            prior ? Point{prior->x1 + along * point[0] * prior->x2, prior->y1 + along * point[1] * prior->y2}
                  : Point{point[0] * width, point[1] * height});
      }
    };
    if (levels_.empty()) {
      for (int64_t row = 0; row < boxes.rows; ++row) add(row, nullptr);
    } else {
      EachPrior(frame.network, add);
    }
    return found;
  }

 private:
  int64_t PriorCount(Size network) const {
    int64_t count = 0;
    for (const PriorLevel& level : levels_) {
      count += CellCount(network, {level.stride}) * static_cast<int64_t>(level.sizes.size());
    }
    return count;
  }

  // Centre and size of each prior box, as x, y, width and height.
  template <typename Add>
  void EachPrior(Size network, const Add& add) const {
    int64_t row = 0;
    for (const PriorLevel& level : levels_) {
      const Size grid = GridSize(network, level.stride);
      const auto stride = static_cast<double>(level.stride);
      const auto step_x = static_cast<float>(spread_ ? static_cast<double>(network.width) / grid.width : stride);
      const auto step_y = static_cast<float>(spread_ ? static_cast<double>(network.height) / grid.height : stride);
      EachCell(network, {level.stride}, [&](int64_t, float x, float y, size_t) {
        for (const auto& [width, height] : level.sizes) {
          const Box prior{(x + 0.5f) * step_x, (y + 0.5f) * step_y, static_cast<float>(width),
                          static_cast<float>(height)};
          add(row++, &prior);
        }
      });
    }
  }

  std::string scores_;
  std::string boxes_;
  std::optional<std::string> points_;
  std::vector<PriorLevel> levels_;
  std::pair<double, double> variances_{0.1, 0.2};
  bool spread_ = false;
  size_t x_;  // where x stands among a box's values; y is the other one of the first two
  bool centred_;
  Background background_ = Background::kFirst;
};

class EfficientDet : public BoxDecoder {
 public:
  explicit EfficientDet(Fields& fields) : BoxDecoder(fields, {0.2f, 0.2}) {
    std::vector<int64_t> levels{3, 4, 5, 6, 7};
    int64_t octaves = 3;
    std::vector<std::pair<double, double>> ratios{{1.0, 1.0}, {1.4, 0.7}, {0.7, 1.4}};
    ReadSuppression(fields);
    fields.Require("scores", &scores_, OneOrMore());
    fields.Require("boxes", &boxes_, OneOrMore());
    fields.Read("layout", &planes_, OneOf{"NHWC", "NCHW"});
    fields.Read("logits", &logits_);
    fields.Read("levels", &levels, Levels(Limits{1, 12}));
    fields.Read("octaves", &octaves, Limits{1, 16});
    fields.Read("ratios", &ratios, Levels(kPositive));
    fields.Read("anchor_scale", &anchor_scale_, kPositive);
    for (const int64_t level : levels) strides_.push_back(int64_t{1} << level);
    for (int64_t k = 0; k < octaves; ++k) {
      const double growth = std::pow(2.0, static_cast<double>(k) / static_cast<double>(octaves));
      for (const auto& [width, height] : ratios) shapes_.emplace_back(growth * width, growth * height);
    }
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
        found.push_back({score,
                         Around((column + 0.5f) * stride + box[1] * width, (row + 0.5f) * stride + box[0] * height,
                                width * Exponential(box[3]), height * Exponential(box[2])),
                         best.index});
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
  bool planes_ = false;
  bool logits_ = true;
  std::vector<int64_t> strides_;
  double anchor_scale_ = 4;
  std::vector<std::pair<double, double>> shapes_;  // width and height in units of the level's anchors
};

}  // namespace

Kinds SsdDecoders() { return {{"efficientdet", Made<EfficientDet>}, {"ssd", Made<Ssd>}}; }

}  // namespace agent
