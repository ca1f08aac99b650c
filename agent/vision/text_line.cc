// The text in an image of one line, by connectionist temporal classification (edgedeploy/vision/decoders/text.py).
#include <algorithm>
#include <cstring>

#include "vision/decoder.h"

namespace agent {
namespace {

// How many bytes the end of a line has at a place; 0 if there is none. It is one of those that `splitlines` of Python
// knows.
size_t LineEnd(const char* text) {
  if (std::strncmp(text, "\r\n", 2) == 0) return 2;
  if (*text != '\0' && std::strchr("\n\r\v\f\x1c\x1d\x1e", *text)) return 1;
  if (std::strncmp(text, "\xc2\x85", 2) == 0) return 2;
  return std::strncmp(text, "\xe2\x80\xa8", 3) == 0 || std::strncmp(text, "\xe2\x80\xa9", 3) == 0 ? 3 : 0;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = LineEnd(text.c_str() + at);
    if (end > 0) {
      lines.push_back(text.substr(begin, at - begin));
      begin = at + end;
    }
    at += std::max<size_t>(end, 1);
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

class TextLine : public Decoder {
 public:
  explicit TextLine(double threshold) : threshold_(threshold) {}

  std::vector<Detection> Decode(const Outputs& outputs, const Frame&, const Labels& labels) const override {
    const Table steps = outputs.TableOf(outputs.FirstOr("").name);
    if (steps.columns == 0) throw NotOfThisKind("it gives no characters");
    Detection result;
    double sum = 0;
    int64_t count = 0;
    int64_t before = -1;
    for (int64_t step = 0; step < steps.rows; ++step) {
      const Best best = BestOf(steps.Row(step), steps.columns);
      if (best.index != 0 && best.index != before) {  // 0 is the blank
        const auto character = static_cast<size_t>(best.index - 1);
        result.label += character == labels.size() ? " " : LabelOf(labels, best.index - 1);
        sum += static_cast<double>(best.value);
        ++count;
      }
      before = best.index;
    }
    if (count == 0 || !(sum / static_cast<double>(count) >= threshold_)) return {};
    result.score = static_cast<float>(sum / static_cast<double>(count));
    return {result};
  }

 private:
  double threshold_;
};

}  // namespace

Fitted MakeTextLine(Parameters& parameters, const Described& network) {
  const double threshold = parameters.Fraction("threshold", 0.5);
  parameters.Finish();
  Fitted fitted{std::make_unique<TextLine>(threshold), {}, {}};
  for (const auto& [key, text] : network.metadata) {
    if (key == "character") fitted.labels = LinesOf(text);
  }
  return fitted;
}

}  // namespace agent
