// The heads of YOLO v2, v3 and v4, and YOLOX (edgedeploy/vision/decoders/yolo.py).
#include <cmath>

#include "vision/decoder.h"

namespace agent {
namespace {

constexpr int64_t kBeforeClasses = 5;  // x, y, width, height, objectness

// log(exp(0) + exp(x)), which cannot overflow.
float LogAddExp(float x) {
  if (x == 0) return std::log(2.0f);
  return x < 0 ? std::log1p(std::exp(x)) : x + std::log1p(std::exp(-x));
}

class Yolo : public BoxDecoder {
 public:
  Yolo(Fields& fields, const Described& network)
      : BoxDecoder(fields, {std::nullopt, 0.45, false}), heads_(network.heads) {
    std::optional<std::vector<Head>> heads;
    ReadSuppression(fields);
    fields.Read("confidence", &tengine_, OneOf{"darknet", "tengine"});
    fields.Read("heads", &heads, OneOrMore());
    has_own_names_ = !heads;
    if (heads) heads_ = std::move(*heads);
    if (heads_.empty()) {
      throw Failure(Code::kInput, "the anchors of the network's heads are not known",
                    "neither the package's decoder states heads, nor the network's file");
    }
  }

  bool has_own_names() const { return has_own_names_; }

 protected:
  Candidates Find(const Outputs& outputs, const Frame& frame) const override {
    Candidates found;
    for (const Head& head : heads_) AddHead(outputs, head, frame.network, &found);
    return found;
  }

 private:
  void AddHead(const Outputs& outputs, const Head& head, Size network, Candidates* found) const {
    const Planes output = outputs.PlanesOf(head.output);
    const auto count = static_cast<int64_t>(head.anchors.size());
    const int64_t channels = output.channels / count;
    const int64_t classes = channels - kBeforeClasses;
    if (output.channels % count != 0 || classes < 1 || (head.classes && *head.classes != classes)) {
      throw NotOfThisKind("the " + std::to_string(output.channels) + " channels of its output '" + head.output +
                          "' do not suit " + std::to_string(count) + " anchors" +
                          (head.classes ? " of " + std::to_string(*head.classes) + " classes" : ""));
    }
    const int64_t area = output.area();
    const auto reach = static_cast<float>(head.scale_x_y);
    const auto back = static_cast<float>((head.scale_x_y - 1) / 2);
    const auto step_x = static_cast<float>(network.width / static_cast<double>(output.columns));
    const auto step_y = static_cast<float>(network.height / static_cast<double>(output.rows));
    for (int64_t anchor = 0; anchor < count; ++anchor) {
      const auto& [width, height] = head.anchors[static_cast<size_t>(anchor)];
      for (int64_t cell = 0; cell < area; ++cell) {
        const float* values = output.values + anchor * channels * area + cell;
        const Best best = BestOf(values + kBeforeClasses * area, classes, area);
        const float score =
            Confidence(head, values[4 * area], best.value, values + kBeforeClasses * area, classes, area);
        if (!Reaches(score)) continue;
        const auto column = static_cast<float>(cell % output.columns);
        const auto row = static_cast<float>(cell / output.columns);
        const float x = (column + (reach * Sigmoid(values[0]) - back)) * step_x;
        const float y = (row + (reach * Sigmoid(values[area]) - back)) * step_y;
        found->push_back({score,
                          Around(x, y, Exponential(values[2 * area]) * static_cast<float>(width),
                                 Exponential(values[3 * area]) * static_cast<float>(height)),
                          best.index});
      }
    }
  }

  // Of a place's best class: all formulas grow with the class's own score.
  float Confidence(const Head& head, float objectness, float best, const float* classes, int64_t count,
                   int64_t step) const {
    if (head.region) {
      const float sure = Sigmoid(objectness);
      if (!Reaches(sure) || std::isnan(best)) return std::nanf("");  // the best class's fraction is at most 1
      float sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += std::exp(classes[i * step] - best);
      return sure * (std::exp(best - best) / sum);
    }
    if (!tengine_) return Sigmoid(objectness) * Sigmoid(best);
    return Sigmoid(objectness - LogAddExp(-best));
  }

  std::vector<Head> heads_;
  bool tengine_ = false;
  bool has_own_names_ = true;
};

// YOLOX: objects without anchors.
class Yolox : public BoxDecoder {
 public:
  explicit Yolox(Fields& fields) : BoxDecoder(fields, {0.3f, 0.65}) {
    ReadSuppression(fields);
    fields.Read("output", &output_);
    fields.Read("strides", &strides_, Levels(kStride));
  }

 protected:
  Candidates Find(const Outputs& outputs, const Frame& frame) const override {
    const Table table = outputs.TableOf(output_, CellCount(frame.network, strides_));
    if (table.columns <= kBeforeClasses) {
      throw NotOfThisKind("its output '" + output_ + "' has " + std::to_string(table.columns) +
                          " values for each cell");
    }
    Candidates found;
    EachCell(frame.network, strides_, [&](int64_t place, float x, float y, size_t level) {
      const float* values = table.Row(place);
      const Best best = BestOf(values + kBeforeClasses, table.columns - kBeforeClasses);
      const float score = values[4] * best.value;
      if (!Reaches(score)) return;
      const auto step = static_cast<float>(strides_[level]);
      found.push_back({score,
                       Around((x + values[0]) * step, (y + values[1]) * step, Exponential(values[2]) * step,
                              Exponential(values[3]) * step),
                       best.index});
    });
    return found;
  }

 private:
  std::string output_ = "output";
  std::vector<int64_t> strides_{8, 16, 32};
};

Fitted MakeYolo(Fields& fields, const Described& network) {
  auto decoder = std::make_unique<Yolo>(fields, network);
  const bool own = decoder->has_own_names();
  return {std::move(decoder), {}, {}, own};
}

}  // namespace

Kinds YoloDecoders() { return {{"yolo", MakeYolo}, {"yolox", Made<Yolox>}}; }

}  // namespace agent
