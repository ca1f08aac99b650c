// Points of a face, a hand or a person that a crop shows, of MediaPipe's networks (edgedeploy/vision/decoders/keypoints.py).
#include <algorithm>
#include <cmath>
#include <limits>

#include "vision/decoder.h"

namespace agent {
namespace {

constexpr int64_t kMaximumPoints = int64_t{1} << 16;
constexpr int64_t kMaximumKernel = 255;

struct Place {
  double x;
  double y;
};

std::vector<size_t> IndicesOf(const Json& json) {
  std::vector<size_t> indices;
  for (const Json& each : json.array()) {
    if (each.integer() < 0 || each.integer() >= kMaximumPoints) throw JsonError("an impossible number of a point");
    indices.push_back(static_cast<size_t>(each.integer()));
  }
  if (indices.empty()) throw JsonError("there are no numbers of points");
  return indices;
}

size_t LargestOf(const std::vector<size_t>& indices) { return *std::max_element(indices.begin(), indices.end()); }

// An output that shows where each point is: the point moves to the mean of the places around it.
struct Heatmap {
  std::string output;
  int kernel;
  float threshold;
};

// An output that knows some points better, and may add some.
struct Refinement {
  std::string output;
  std::vector<size_t> points;
  std::vector<size_t> depth_of;  // whose mean depth is that of the added ones
};

float Single(const Outputs& outputs, const std::string& name) {
  const Outputs::Output& output = outputs.At(name);
  if (output.values.size() != 1) {
    throw NotOfThisKind("its output '" + name + "' is " + Shown(output.shape) + ", not one value");
  }
  return output.values.front();
}

void Refine(const Heatmap& heatmap, const Outputs& outputs, Size network, std::vector<Place>& places) {
  const Outputs::Output& heat = outputs.At(heatmap.output);
  const auto count = static_cast<int64_t>(places.size());
  if (heat.shape.size() != 4 || heat.shape[0] != 1 || heat.shape[3] != count) {
    throw NotOfThisKind("its output '" + heatmap.output + "' is " + Shown(heat.shape) + ", not 1xHxWx" +
                        std::to_string(count));
  }
  const int64_t rows = heat.shape[1];
  const int64_t columns = heat.shape[2];
  const double step_x = static_cast<double>(network.width) / static_cast<double>(columns);
  const double step_y = static_cast<double>(network.height) / static_cast<double>(rows);
  const int reach = (heatmap.kernel - 1) / 2;
  for (int64_t index = 0; index < count; ++index) {
    const Place place{places[index].x / step_x, places[index].y / step_y};
    if (!(place.x > -1 && place.y > -1 && place.x < static_cast<double>(columns) &&
          place.y < static_cast<double>(rows))) {
      continue;
    }
    const auto column = static_cast<int64_t>(place.x);
    const auto row = static_cast<int64_t>(place.y);
    double sum = 0;
    double sum_x = 0;
    double sum_y = 0;
    double most = 0;
    for (int64_t y = std::max<int64_t>(0, row - reach); y < std::min(rows, row + reach + 1); ++y) {
      for (int64_t x = std::max<int64_t>(0, column - reach); x < std::min(columns, column + reach + 1); ++x) {
        const double near = Sigmoid(static_cast<double>(heat.values[(y * columns + x) * count + index]));
        sum += near;
        sum_x += near * static_cast<double>(x);
        sum_y += near * static_cast<double>(y);
        most = std::isnan(near) || near > most ? near : most;
      }
    }
    if (most >= heatmap.threshold && !std::isnan(sum)) places[index] = {sum_x / sum * step_x, sum_y / sum * step_y};
  }
}

void Refine(const Refinement& refinement, const Outputs& outputs, std::vector<Place>& places,
            std::vector<double>& depths) {
  const Outputs::Output& better = outputs.At(refinement.output);
  const size_t count = refinement.points.size();
  const bool known = refinement.depth_of.empty() || LargestOf(refinement.depth_of) < depths.size();
  if (better.values.size() != 2 * count || LargestOf(refinement.points) >= places.size() + count || !known) {
    throw NotOfThisKind("its output '" + refinement.output + "' is " + Shown(better.shape) +
                        ", which does not suit " + std::to_string(count) + " points");
  }
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  double depth = kUnknown;
  if (!refinement.depth_of.empty()) {
    depth = 0;
    for (const size_t place : refinement.depth_of) depth += depths[place];
    depth /= static_cast<double>(refinement.depth_of.size());
  }
  const size_t all = std::max(places.size(), LargestOf(refinement.points) + 1);
  places.resize(all, {kUnknown, kUnknown});
  depths.resize(all, depth);
  for (size_t i = 0; i < count; ++i) places[refinement.points[i]] = {better.values[2 * i], better.values[2 * i + 1]};
}

class Landmarks : public Decoder {
 public:
  explicit Landmarks(Parameters& parameters) {
    output_ = parameters.At("output").text();
    values_ = static_cast<size_t>(parameters.Count("values", 3, 5));
    if (values_ < 2) throw JsonError("values are not from 2 to 5");
    if (parameters.Find("points")) points_ = static_cast<size_t>(parameters.Count("points", 0, kMaximumPoints));
    if (const Json* refinements = parameters.Find("refinements")) {
      for (const Json& each : refinements->array()) {
        Parameters stated(each);
        Refinement refinement{stated.At("output").text(), IndicesOf(stated.At("points")), {}};
        if (const Json* depth_of = stated.Find("depth_of")) refinement.depth_of = IndicesOf(*depth_of);
        refinements_.push_back(std::move(refinement));
      }
    }
    if (const Json* heatmap = parameters.Find("heatmap")) {
      Parameters stated(*heatmap);
      heatmap_ = Heatmap{stated.At("output").text(), static_cast<int>(stated.Count("kernel", 7, kMaximumKernel)),
                         static_cast<float>(stated.Fraction("threshold", 0.5))};
    }
    score_ = parameters.At("score").text();
    logits_ = parameters.Truth("logits", false);
    threshold_ = parameters.Fraction("threshold", 0.5);
    classes_ = parameters.Text("classes", "");
    if (parameters.Find("names")) names_ = parameters.Texts("names");
    if (names_.empty() || (!classes_.empty() && names_.size() != 2)) throw JsonError("names are those of the classes");
    depth_scale_ = parameters.Side("depth_scale", 1);
    // They say what the next image's crop is, and what is drawn.
    parameters.Find("guides");
    parameters.Find("lines");
    parameters.Finish();
  }

  std::vector<Detection> Decode(const Outputs& outputs, const Frame& frame, const Labels& labels) const override {
    const Outputs::Output& output = outputs.At(output_);
    if (output.values.empty() || output.values.size() % values_ != 0) {
      throw NotOfThisKind("its output '" + output_ + "' is " + Shown(output.shape) + ", not " +
                          std::to_string(values_) + " values for each point");
    }
    const float score = Single(outputs, score_);
    const std::optional<float> first = classes_.empty() ? std::nullopt : std::optional(Single(outputs, classes_));
    std::vector<Place> places;
    std::vector<double> depths;
    for (const float* each = output.values.data(); each != output.values.data() + output.values.size();
         each += values_) {
      places.push_back({each[0], each[1]});
      depths.push_back(values_ > 2 ? each[2] : std::numeric_limits<double>::quiet_NaN());
    }
    const size_t stated = places.size();
    if (heatmap_) Refine(*heatmap_, outputs, frame.network, places);
    for (const Refinement& each : refinements_) Refine(each, outputs, places, depths);
    const size_t count = points_.value_or(places.size());
    if (count > places.size() || (values_ > 3 && count > stated)) {
      throw NotOfThisKind("its output '" + output_ + "' has " + std::to_string(places.size()) + " points only");
    }
    const double probability = logits_ ? Sigmoid(static_cast<double>(score)) : score;
    const bool finite = std::all_of(places.begin(), places.end(), [](const Place& each) {
      return std::isfinite(each.x) && std::isfinite(each.y);
    });
    if (!(probability >= threshold_ && finite)) return {};
    Detection result;
    result.class_id = !first || *first >= 1 - *first ? 0 : 1;
    result.label = LabelOf(labels.empty() ? names_ : labels, result.class_id);
    result.score = static_cast<float>(probability);
    for (size_t i = 0; i < count; ++i) {
      result.points.push_back({static_cast<float>((places[i].x - frame.offset_x) / frame.scale_x),
                               static_cast<float>((places[i].y - frame.offset_y) / frame.scale_y)});
      result.depths.push_back(static_cast<float>(depths[i] / (frame.scale_x * depth_scale_)));
      if (values_ > 3) {
        const float sure = Sigmoid(output.values[i * values_ + 3]);
        result.point_scores.push_back(std::isnan(sure) ? 0 : sure);
      }
    }
    const bool deep = std::all_of(result.depths.begin(), result.depths.end(), [](float each) {
      return std::isfinite(each);
    });
    if (!deep) result.depths.clear();
    return {result};
  }

 private:
  std::string output_;
  size_t values_;
  std::optional<size_t> points_;  // how many are reported
  std::vector<Refinement> refinements_;
  std::optional<Heatmap> heatmap_;
  std::string score_;
  bool logits_;
  double threshold_;
  std::string classes_;
  Labels names_{"face"};
  double depth_scale_;
};

}  // namespace

Fitted MakeLandmarks(Parameters& parameters, const Described&) {
  return {std::make_unique<Landmarks>(parameters), {}, {}};
}

}  // namespace agent
