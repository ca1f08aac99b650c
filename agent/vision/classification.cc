// Classes of a whole image (edgedeploy/vision/decoders/classification.py).
#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "vision/decoder.h"

namespace agent {
namespace {

class Classification : public Decoder {
 public:
  explicit Classification(Fields& fields) { fields.Read("top", &top_, kCount); }

  std::vector<Detection> Decode(const Outputs& outputs, const Frame&, const Labels& labels) const override {
    if (outputs.all().empty()) throw NotOfThisKind("it has no output");
    const Outputs::Output& output = outputs.all().front();
    const auto longest = std::max_element(output.shape.begin(), output.shape.end());
    if (output.values.size() != static_cast<uint64_t>(longest == output.shape.end() ? 1 : *longest)) {
      throw output.IsNot("one score per class");
    }
    std::vector<size_t> order(output.values.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto key = [&](size_t place) {  // NaN comes last
      const float value = output.values[place];
      return std::make_tuple(std::isnan(value), std::isnan(value) ? 0 : -value, place);
    };
    const size_t count = std::min(top_, order.size());
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                      [&](size_t a, size_t b) { return key(a) < key(b); });
    std::vector<Detection> results(count);
    for (size_t i = 0; i < count; ++i) {
      results[i].class_id = static_cast<int64_t>(order[i]);
      results[i].label = LabelOf(labels, results[i].class_id);
      results[i].score = output.values[order[i]];
    }
    return results;
  }

 private:
  size_t top_ = 5;
};

}  // namespace

Kinds ClassificationDecoders() { return {{"classification", Made<Classification>}}; }

}  // namespace agent
