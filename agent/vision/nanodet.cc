// NanoDet: objects whose sides are distributions (edgedeploy/vision/decoders/nanodet.py).
#include <cmath>

#include "vision/decoder.h"

namespace agent {
namespace {

class NanoDet : public BoxDecoder {
 public:
  explicit NanoDet(Fields& fields) : BoxDecoder(fields, {0.4f, 0.5}) {
    ReadSuppression(fields);
    fields.Read("strides", &strides_, Levels(kStride));
    fields.Read("output", &output_);
    fields.Read("scores", &scores_);
    fields.Read("distances", &distances_);
    fields.Read("bins", &bins_, Limits{2, 1 << 16});
    fields.Read("offset", &offset_, kFraction);
    const size_t levels = output_ ? 0 : strides_.size();
    if (scores_.size() != levels || distances_.size() != levels) {
      throw JsonError("neither `output`, nor `scores` and `distances` with one output for each stride");
    }
  }

 protected:
  Candidates Find(const Outputs& outputs, const Frame& frame) const override {
    const int64_t sides = 4 * bins_;
    Candidates found;
    if (output_) {
      const Table table = outputs.TableOf(*output_, CellCount(frame.network, strides_));
      const int64_t classes = table.columns - sides;
      AddCells(frame.network, strides_, classes, table, {table.values + classes, table.rows, table.columns}, &found);
      return found;
    }
    const int64_t classes = outputs.TableOf(scores_.front()).columns;
    for (size_t level = 0; level < strides_.size(); ++level) {
      const int64_t count = CellCount(frame.network, {strides_[level]});
      const Table scores = outputs.TableOf(scores_[level], count);
      AddCells(frame.network, {strides_[level]}, scores.columns == classes ? classes : 0, scores,
               outputs.TableOf(distances_[level], count, sides), &found);
    }
    return found;
  }

 private:
  void AddCells(Size network, const std::vector<int64_t>& strides, int64_t classes, const Table& scores,
                const Table& distances, Candidates* found) const {
    if (classes < 1) throw NotOfThisKind("its scores have no class, or different numbers of them");
    EachCell(network, strides, [&](int64_t place, float x, float y, size_t level) {
      const Best best = BestOf(scores.Row(place), classes);
      if (!Reaches(best.value)) return;
      const auto step = static_cast<float>(strides[level]);
      const float* values = distances.Row(place);
      const float left = (x + offset_) * step;
      const float top = (y + offset_) * step;
      found->push_back({best.value,
                        {left - Mean(values) * step, top - Mean(values + bins_) * step,
                         left + Mean(values + 2 * bins_) * step, top + Mean(values + 3 * bins_) * step},
                        best.index});
    });
  }

  // Of 0, 1, ... in the distribution that softmax makes of the values.
  float Mean(const float* values) const {
    const float most = BestOf(values, bins_).value;
    std::vector<float> powers;
    float sum = 0;
    for (int64_t i = 0; i < bins_; ++i) {
      powers.push_back(std::exp(values[i] - most));
      sum += powers.back();
    }
    float mean = 0;
    for (int64_t i = 0; i < bins_; ++i) mean += powers[static_cast<size_t>(i)] / sum * static_cast<float>(i);
    return mean;
  }

  std::vector<int64_t> strides_{8, 16, 32};
  std::optional<std::string> output_;
  std::vector<std::string> scores_;
  std::vector<std::string> distances_;
  int64_t bins_ = 8;
  float offset_ = 0.5f;
};

}  // namespace

Kinds NanoDetDecoders() { return {{"nanodet", Made<NanoDet>}}; }

}  // namespace agent
