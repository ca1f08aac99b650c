#include "vision/decoder.h"

#include <algorithm>
#include <cmath>

namespace agent {
namespace {

const Kinds& AllKinds() {
  static const Kinds kinds = [] {
    Kinds all;
    for (const Kinds& each :
         {ClassificationDecoders(), FaceDecoders(), KeypointDecoders(), MapDecoders(), NanoDetDecoders(), SsdDecoders(),
          TextDecoders(), UltralyticsDecoders(), YoloDecoders()}) {
      all.insert(all.end(), each.begin(), each.end());
    }
    return all;
  }();
  return kinds;
}

// exp(32) times any anchor is far outside of every image, and far from the largest float32, exp(88).
constexpr float kLargestExponent = 32;

}  // namespace

std::string LabelOf(const Labels& labels, int64_t class_id) {
  const auto place = static_cast<size_t>(class_id);
  return place < labels.size() ? labels[place] : std::to_string(class_id);
}

Fitted MakeDecoder(const Json& stated, const Described& network) {
  const std::string& name = stated.at("kind").text();
  for (const auto& [kind, make] : AllKinds()) {
    if (name != kind) continue;
    try {
      Fields fields(stated);
      Fitted fitted = make(fields, network);
      fields.Skip({"kind"});
      fields.Finish();
      return fitted;
    } catch (const JsonError& error) {
      throw Failure(Code::kInput, "the package's decoder '" + name + "' has parameters that are not known here",
                    error.what());
    }
  }
  throw Failure(Code::kInput, "the package's decoder '" + name + "' is not known here",
                "its outputs can be read as they are");
}

Json DecoderSchemas() {
  const Json nothing = Json::NewObject();
  Json schemas = Json::NewObject();
  for (const auto& [kind, make] : AllKinds()) {
    Json schema = Json::NewObject();
    Fields fields(nothing, &schema);
    try {
      make(fields, {{}, {}, {}});
    } catch (const std::runtime_error&) {
      // Nothing is stated, which suits few kinds; by then all fields are described.
    }
    schemas.Set(kind, std::move(schema));
  }
  return schemas;
}

BoxDecoder::BoxDecoder(Fields& fields, const Defaults& defaults)
    : threshold_(defaults.threshold.value_or(0)), suppression_{defaults.iou_threshold}, clip_(defaults.clip) {
  if (defaults.threshold) {
    fields.Read("threshold", &threshold_, kFraction);
  } else {
    fields.Require("threshold", &threshold_, kFraction);
  }
  fields.Read("iou_threshold", &suppression_.iou_threshold, kFraction);
  fields.Read("tie", &suppression_.tie, kFraction);
  fields.Read("candidates", &candidates_, kCount);
  fields.Read("clip", &clip_);
}

std::vector<Detection> BoxDecoder::Decode(const Outputs& outputs, const Frame& frame, const Labels& labels) const {
  std::vector<Detection> results;
  for (const Candidate& each : Reduced(Sound(Find(outputs, frame)))) {
    Detection result;
    result.class_id = each.class_id;
    result.label = LabelOf(labels.empty() ? names_ : labels, each.class_id);
    result.score = each.score;
    if (Place(each, outputs, frame, &result)) results.push_back(std::move(result));
  }
  return results;
}

// Those that have a place, as many as are compared. NaN compares as false with everything, and would suppress every
// box.
Candidates BoxDecoder::Sound(Candidates found) const {
  const auto is_unsound = [&](const Candidate& each) {
    const auto [x1, y1, x2, y2] = each.box;
    return !Reaches(each.score) || !IsFinite({x1, y1}) || !IsFinite({x2, y2}) ||
           !std::all_of(each.points.begin(), each.points.end(), IsFinite);
  };
  found.erase(std::remove_if(found.begin(), found.end(), is_unsound), found.end());
  if (found.size() <= candidates_) return found;
  std::vector<size_t> order = ByScore(found);
  order.resize(candidates_);
  std::sort(order.begin(), order.end());
  return Chosen(found, order);
}

bool BoxDecoder::Place(const Candidate& found, const Outputs&, const Frame& frame, Detection* result) const {
  Box box = frame.ToImage(found.box);
  if (clip_) {
    const auto right = static_cast<float>(frame.image.width - 1);
    const auto bottom = static_cast<float>(frame.image.height - 1);
    box = {Clipped(box.x1, right), Clipped(box.y1, bottom), Clipped(box.x2, right), Clipped(box.y2, bottom)};
    if (!(box.x1 < box.x2 && box.y1 < box.y2)) return false;
  }
  result->box = box;
  for (const Point& point : found.points) result->points.push_back(frame.ToImage(point));
  return true;
}

Best BestOf(const float* values, int64_t count, int64_t step) {
  Best best{values[0], 0};
  for (int64_t i = 0; i < count && !std::isnan(best.value); ++i) {
    const float value = values[i * step];
    if (value > best.value || std::isnan(value)) best = {value, i};
  }
  return best;
}

float Sigmoid(float x) { return (std::tanh(x / 2) + 1) / 2; }
double Sigmoid(double x) { return (std::tanh(x / 2) + 1) / 2; }

float Exponential(float x) { return std::exp(std::min(x, kLargestExponent)); }

Size GridSize(Size network, int64_t stride) {
  const auto cells = [&](int64_t pixels) { return static_cast<int>((pixels + stride - 1) / stride); };
  return {cells(network.height), cells(network.width)};
}

int64_t CellCount(Size network, const std::vector<int64_t>& strides) {
  int64_t count = 0;
  for (const int64_t stride : strides) {
    const Size grid = GridSize(network, stride);
    count += int64_t{grid.height} * grid.width;
  }
  return count;
}

}  // namespace agent
