// YOLOX: objects without anchors (edgedeploy/vision/decoders/yolo.py).
#include "vision/decoder.h"

namespace agent {
namespace {

constexpr int64_t kBeforeClasses = 5;  // x, y, width, height, objectness

class Yolox : public BoxDecoder {
 public:
  explicit Yolox(Parameters& parameters) : BoxDecoder(parameters, {0.3, 0.65}) {
    ReadSuppression(parameters);
    output_ = parameters.Text("output", "output");
    strides_ = parameters.Counts("strides", {8, 16, 32}, kMaximumStride);
    parameters.Finish();
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
      found.Add(score,
                Around((x + values[0]) * step, (y + values[1]) * step, Exponential(values[2]) * step,
                       Exponential(values[3]) * step),
                best.index);
    });
    return found;
  }

 private:
  std::string output_;
  std::vector<int64_t> strides_;
};

}  // namespace

Fitted MakeYolox(Parameters& parameters, const Described&) { return {std::make_unique<Yolox>(parameters), {}, {}}; }

}  // namespace agent
