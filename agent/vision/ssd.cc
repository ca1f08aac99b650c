// Boxes as corrections of prior boxes: SSD and what followed its form (edgedeploy/vision/decoders/ssd.py).
#include "vision/decoder.h"

namespace agent {
namespace {

struct PriorLevel {
  int64_t stride;
  std::vector<std::pair<double, double>> sizes;
};

class Ssd : public BoxDecoder {
 public:
  explicit Ssd(Parameters& parameters) : BoxDecoder(parameters, {0.5, 0.4}) {
    ReadSuppression(parameters);
    scores_ = parameters.At("scores").text();
    boxes_ = parameters.At("boxes").text();
    points_ = parameters.Text("points", "");
    if (const Json* levels = parameters.Find("levels")) {
      for (const Json& each : levels->array()) levels_.push_back(ReadLevel(each));
      if (levels_.empty()) throw JsonError("levels is empty");
    }
    if (const Json* variances = parameters.Find("variances")) variances_ = SidesOf(*variances);
    spread_ = parameters.Choice("spacing", {"stride", "even"}, 0) == 1;
    const size_t format = parameters.Choice("box_format", {"xyxy", "yxyx", "cxcywh", "cycxhw"}, levels_.empty() ? 0 : 2);
    if (!levels_.empty() && format < 2) throw JsonError("with levels box_format is cxcywh or cycxhw");
    x_ = format % 2;
    centred_ = format >= 2;
    background_ = parameters.Choice("background", {"first", "last", "none"}, 0);
    parameters.Finish();
  }

 protected:
  Candidates Find(const Outputs& outputs, const Frame& frame) const override {
    const Table boxes = outputs.TableOf(boxes_, levels_.empty() ? -1 : PriorCount(frame.network), 4);
    const Table scores = outputs.TableOf(scores_, boxes.rows);
    const int64_t classes = scores.columns - (background_ == 2 ? 0 : 1);
    if (classes < 1) throw NotOfThisKind("its output '" + scores_ + "' has no class beside the background");
    Table points{nullptr, boxes.rows, 0};
    if (!points_.empty()) points = outputs.TableOf(points_, boxes.rows);
    if (points.columns % 2 != 0) {
      throw NotOfThisKind("its output '" + points_ + "' has " + std::to_string(points.columns) +
                          " values for each place");
    }
    Candidates found;
    found.points_each = static_cast<size_t>(points.columns / 2);
    const auto width = static_cast<float>(frame.network.width);
    const auto height = static_cast<float>(frame.network.height);
    const auto along = static_cast<float>(variances_.first);
    const auto across = static_cast<float>(variances_.second);
    const auto add = [&](int64_t row, const Box* prior) {
      const Best best = BestOf(scores.Row(row) + (background_ == 0 ? 1 : 0), classes);
      if (!Reaches(best.value)) return;
      const float* values = boxes.Row(row);
      const float x = values[x_], y = values[1 - x_], right = values[2 + x_], low = values[3 - x_];
      if (prior) {
        found.Add(best.value,
                  Around(prior->x1 + along * x * prior->x2, prior->y1 + along * y * prior->y2,
                         prior->x2 * Exponential(across * right), prior->y2 * Exponential(across * low)),
                  best.index);
      } else if (centred_) {
        found.Add(best.value, Around(x * width, y * height, right * width, low * height), best.index);
      } else {
        found.Add(best.value, {x * width, y * height, right * width, low * height}, best.index);
      }
      for (int64_t i = 0; i < points.columns; i += 2) {
        const float* point = points.Row(row) + i;
        found.points.push_back(
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
  static PriorLevel ReadLevel(const Json& json) {
    Parameters parameters(json);
    PriorLevel level{CountOf(parameters.At("stride"), kMaximumStride), {}};
    for (const Json& each : parameters.At("sizes").array()) level.sizes.push_back(SidesOf(each));
    if (level.sizes.empty()) throw JsonError("sizes is empty");
    return level;
  }

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
  std::string points_;
  std::vector<PriorLevel> levels_;
  std::pair<double, double> variances_{0.1, 0.2};
  bool spread_;
  size_t x_;  // where x stands among a box's values; y is the other one of the first two
  bool centred_;
  size_t background_;
};

}  // namespace

Fitted MakeSsd(Parameters& parameters, const Described&) { return {std::make_unique<Ssd>(parameters), {}, {}}; }

}  // namespace agent
