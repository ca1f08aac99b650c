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

bool IsFinite(const Box& box) {
  return std::isfinite(box.x1) && std::isfinite(box.y1) && std::isfinite(box.x2) && std::isfinite(box.y2);
}

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
  const Candidates found = Sound(Find(outputs, frame));
  return Results(Reduced(found), outputs, frame, labels);
}

// Those that have a place, as many as are compared. NaN compares as false with everything, and would suppress every
// box.
Candidates BoxDecoder::Sound(const Candidates& found) const {
  std::vector<size_t> sound;
  for (size_t i = 0; i < found.size(); ++i) {
    const Point* points = found.PointsOf(i);
    const bool placed = std::all_of(points, points + found.points_each,
                                    [](const Point& each) { return std::isfinite(each.x) && std::isfinite(each.y); });
    if (Reaches(found.scores[i]) && IsFinite(found.boxes[i]) && placed) sound.push_back(i);
  }
  Candidates best = found.Chosen(sound);
  if (best.size() <= candidates_) return best;
  std::vector<size_t> order = ByScore(best.scores);
  order.resize(candidates_);
  std::sort(order.begin(), order.end());
  return best.Chosen(order);
}

std::vector<Detection> BoxDecoder::Named(const Candidates& found, const Labels& labels) const {
  std::vector<Detection> results(found.size());
  for (size_t i = 0; i < results.size(); ++i) {
    results[i].class_id = found.classes[i];
    results[i].label = LabelOf(labels.empty() ? names_ : labels, found.classes[i]);
    results[i].score = found.scores[i];
  }
  return results;
}

std::vector<Detection> BoxDecoder::Results(const Candidates& found, const Outputs&, const Frame& frame,
                                           const Labels& labels) const {
  std::vector<Detection> all = Named(found, labels);
  std::vector<Detection> results;
  const auto right = static_cast<float>(frame.image.width - 1);
  const auto bottom = static_cast<float>(frame.image.height - 1);
  for (size_t i = 0; i < found.size(); ++i) {
    Box box = frame.ToImage(found.boxes[i]);
    if (clip_) {
      box = {Clipped(box.x1, right), Clipped(box.y1, bottom), Clipped(box.x2, right), Clipped(box.y2, bottom)};
      if (!(box.x1 < box.x2 && box.y1 < box.y2)) continue;
    }
    all[i].box = box;
    for (size_t j = 0; j < found.points_each; ++j) all[i].points.push_back(frame.ToImage(found.PointsOf(i)[j]));
    results.push_back(std::move(all[i]));
  }
  return results;
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
